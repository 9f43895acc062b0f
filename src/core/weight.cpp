// SPDX-License-Identifier: Apache-2.0
#include "quire/weight.h"

#include <array>
#include <utility>

#include "core/block_format.h"

namespace quire {
namespace {

constexpr std::array<std::pair<WeightFormat, std::string_view>, 16> kNames{{
    {WeightFormat::dense, "dense"},
    {WeightFormat::fp8, "fp8"},
    {WeightFormat::int4, "int4"},
    {WeightFormat::gptq, "gptq"},
    {WeightFormat::gptq_v2, "gptq_v2"},
    {WeightFormat::awq, "awq"},
    {WeightFormat::q4_0, "q4_0"},
    {WeightFormat::q4_1, "q4_1"},
    {WeightFormat::q5_0, "q5_0"},
    {WeightFormat::q5_1, "q5_1"},
    {WeightFormat::q8_0, "q8_0"},
    {WeightFormat::iq4_nl, "iq4_nl"},
    {WeightFormat::mxfp4, "mxfp4"},
    {WeightFormat::q4_k, "q4_k"},
    {WeightFormat::q5_k, "q5_k"},
    {WeightFormat::q6_k, "q6_k"},
}};

constexpr std::array<std::pair<WeightPacking, std::string_view>, 6> kPackingNames{{
    {WeightPacking::none, "none"},
    {WeightPacking::panels_8, "panels_8"},
    {WeightPacking::panels_16, "panels_16"},
    {WeightPacking::panels_32, "panels_32"},
    {WeightPacking::quads_8, "quads_8"},
    {WeightPacking::fragments_64, "fragments_64"},
}};

}  // namespace

std::int64_t Weight::rows() const {
  if (packing != WeightPacking::none) return packed.rows;
  switch (format) {
    case WeightFormat::gptq:
    case WeightFormat::gptq_v2:
      return data.shape[1];
    case WeightFormat::awq:
      return data.shape[1] * 8;
    default:
      return data.shape[0];
  }
}

std::int64_t Weight::columns() const {
  if (packing != WeightPacking::none) return packed.columns;
  if (const BlockFormat* block = find_block_format(format)) {
    return data.shape[1] / block->bytes * block->columns;
  }
  switch (format) {
    case WeightFormat::gptq:
    case WeightFormat::gptq_v2:
      return data.shape[0] * 8;
    case WeightFormat::awq:
      return data.shape[0];
    default:
      return data.shape[1];
  }
}

std::string_view name(WeightFormat format) {
  for (const auto& [value, text] : kNames) {
    if (value == format) return text;
  }
  return "unknown";
}

std::string_view name(WeightPacking packing) {
  for (const auto& [value, text] : kPackingNames) {
    if (value == packing) return text;
  }
  return "unknown";
}

std::optional<WeightPacking> weight_packing_from_name(std::string_view text) {
  for (const auto& [value, known] : kPackingNames) {
    if (known == text) return value;
  }
  return std::nullopt;
}

std::optional<WeightFormat> weight_format_from_name(std::string_view text) {
  for (const auto& [value, known] : kNames) {
    if (known == text) return value;
  }
  return std::nullopt;
}

}  // namespace quire
