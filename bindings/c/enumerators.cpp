// SPDX-License-Identifier: Apache-2.0
// The numbers of the C interface for the enumerators of the C++ one. They stand in tables of their own because the latter
// may be reordered.
#include <span>
#include <utility>

#include "reader.h"

namespace quire::c {
namespace {

template <typename Enum> using Row = std::pair<std::int32_t, Enum>;

constexpr Row<DType> kDTypes[] = {
    {QUIRE_DTYPE_F32, DType::f32},
    {QUIRE_DTYPE_F16, DType::f16},
    {QUIRE_DTYPE_BF16, DType::bf16},
    {QUIRE_DTYPE_FP8_E4M3, DType::fp8_e4m3},
    {QUIRE_DTYPE_FP8_E5M2, DType::fp8_e5m2},
    {QUIRE_DTYPE_I8, DType::i8},
    {QUIRE_DTYPE_I4, DType::i4},
    {QUIRE_DTYPE_U4, DType::u4},
    {QUIRE_DTYPE_U8, DType::u8},
    {QUIRE_DTYPE_I32, DType::i32},
    {QUIRE_DTYPE_U32, DType::u32},
    {QUIRE_DTYPE_I64, DType::i64},
    {QUIRE_DTYPE_E8M0, DType::e8m0},
};

constexpr Row<WeightFormat> kWeightFormats[] = {
    {QUIRE_WEIGHT_DENSE, WeightFormat::dense},     {QUIRE_WEIGHT_FP8, WeightFormat::fp8},
    {QUIRE_WEIGHT_INT4, WeightFormat::int4},       {QUIRE_WEIGHT_GPTQ, WeightFormat::gptq},
    {QUIRE_WEIGHT_GPTQ_V2, WeightFormat::gptq_v2}, {QUIRE_WEIGHT_AWQ, WeightFormat::awq},
    {QUIRE_WEIGHT_Q4_0, WeightFormat::q4_0},       {QUIRE_WEIGHT_Q8_0, WeightFormat::q8_0},
    {QUIRE_WEIGHT_Q4_K, WeightFormat::q4_k},       {QUIRE_WEIGHT_Q6_K, WeightFormat::q6_k},
    {QUIRE_WEIGHT_Q4_1, WeightFormat::q4_1},       {QUIRE_WEIGHT_Q5_0, WeightFormat::q5_0},
    {QUIRE_WEIGHT_Q5_1, WeightFormat::q5_1},       {QUIRE_WEIGHT_Q5_K, WeightFormat::q5_k},
    {QUIRE_WEIGHT_IQ4_NL, WeightFormat::iq4_nl},   {QUIRE_WEIGHT_MXFP4, WeightFormat::mxfp4},
};

constexpr Row<WeightPacking> kWeightPackings[] = {
    {QUIRE_PACKING_NONE, WeightPacking::none},
    {QUIRE_PACKING_PANELS_8, WeightPacking::panels_8},
    {QUIRE_PACKING_PANELS_16, WeightPacking::panels_16},
    {QUIRE_PACKING_PANELS_32, WeightPacking::panels_32},
    {QUIRE_PACKING_QUADS_8, WeightPacking::quads_8},
    {QUIRE_PACKING_FRAGMENTS_64, WeightPacking::fragments_64},
};

template <typename Enum>
const Row<Enum>* find_number(std::span<const Row<Enum>> rows, std::int32_t number) {
  for (const Row<Enum>& row : rows) {
    if (row.first == number) return &row;
  }
  return nullptr;
}

template <typename Enum> std::int32_t find_enumerator(std::span<const Row<Enum>> rows, Enum value) {
  for (const Row<Enum>& row : rows) {
    if (row.second == value) return row.first;
  }
  throw Error(ErrorCode::runtime, "c", "enumerator", "one that the C interface has",
              std::to_string(static_cast<int>(value)));
}

}  // namespace

DType Reader::dtype(std::string_view argument, std::int32_t value) const {
  if (const auto* row = find_number<DType>(kDTypes, value)) return row->second;
  fail(argument, "one of QUIRE_DTYPE_*", std::to_string(value));
}

WeightFormat Reader::weight_format(std::string_view argument, std::int32_t value) const {
  if (const auto* row = find_number<WeightFormat>(kWeightFormats, value)) return row->second;
  fail(argument, "one of QUIRE_WEIGHT_*", std::to_string(value));
}

WeightPacking Reader::weight_packing(std::string_view argument, std::int32_t value) const {
  if (const auto* row = find_number<WeightPacking>(kWeightPackings, value)) return row->second;
  fail(argument, "one of QUIRE_PACKING_*", std::to_string(value));
}

KvSide Reader::side(std::int32_t value) const {
  if (value == QUIRE_SIDE_KEY) return KvSide::key;
  if (value == QUIRE_SIDE_VALUE) return KvSide::value;
  fail("side", "QUIRE_SIDE_KEY or QUIRE_SIDE_VALUE", std::to_string(value));
}

ScaleRounding Reader::scale_rounding(std::int32_t value, ScaleRounding otherwise) const {
  switch (value) {
    case QUIRE_SCALE_ROUNDING_DEFAULT:
      return otherwise;
    case QUIRE_SCALE_ROUNDING_EXACT:
      return ScaleRounding::exact;
    case QUIRE_SCALE_ROUNDING_POWER_OF_TWO:
      return ScaleRounding::power_of_two;
    default:
      fail("scale_rounding", "one of QUIRE_SCALE_ROUNDING_*", std::to_string(value));
  }
}

std::int32_t number_of(DType dtype) {
  return find_enumerator<DType>(kDTypes, dtype);
}
std::int32_t number_of(WeightFormat format) {
  return find_enumerator<WeightFormat>(kWeightFormats, format);
}
std::int32_t number_of(WeightPacking packing) {
  return find_enumerator<WeightPacking>(kWeightPackings, packing);
}

}  // namespace quire::c
