// SPDX-License-Identifier: Apache-2.0
#include "reference/weight.h"

#include <array>

#include "core/block_format.h"
#include "reference/gguf.h"

namespace quire::reference {
namespace {

constexpr std::int64_t kFp8Block = 128;
constexpr int kMiddleCode = 8;  // the zero point of a weight without zero points

// Code `index` (0..7) of a 32-bit word, the lowest bits first.
int nibble(const TensorView& words, std::int64_t row, std::int64_t column, std::int64_t index) {
  const auto word = words.as<const std::uint32_t>()[words.offset({row, column})];
  return static_cast<int>((word >> (4 * index)) & 0x0f);
}

// AWQ interleaves: of eight columns, nibble 0 is column 0, nibble 1 is column 2, …
std::int64_t awq_nibble(std::int64_t column) {
  constexpr std::array<std::int64_t, 8> kNibbleOfColumn{0, 4, 1, 5, 2, 6, 3, 7};
  return kNibbleOfColumn[static_cast<std::size_t>(column % 8)];
}

double fp8_value(const Weight& weight, std::int64_t row, std::int64_t column) {
  const TensorView& scale = *weight.scale;
  // [1, 1] per tensor, [N, 1] per channel, else one scale for a block of 128 × 128.
  const bool per_channel = scale.shape[0] == weight.rows() && scale.shape[1] == 1;
  const std::int64_t scale_row = scale.shape[0] == 1 ? 0 : per_channel ? row : row / kFp8Block;
  const std::int64_t scale_column = scale.shape[1] == 1 ? 0 : column / kFp8Block;
  return weight.data.load({row, column}) * scale.load({scale_row, scale_column});
}

double int4_value(const Weight& weight, std::int64_t row, std::int64_t column) {
  const std::int64_t group = column / weight.group_size;
  const double zero = weight.zeros ? weight.zeros->load({row, group}) : kMiddleCode;
  return (weight.data.load({row, column}) - zero) * weight.scale->load({row, group});
}

double gptq_value(const Weight& weight, std::int64_t row, std::int64_t column) {
  const std::int64_t group = column / weight.group_size;
  const int code = nibble(weight.data, column / 8, row, column % 8);
  int zero = kMiddleCode;
  if (weight.zeros) {
    const int stored = nibble(*weight.zeros, group, row / 8, row % 8);
    zero = weight.format == WeightFormat::gptq ? stored + 1 : stored;
  }
  return (code - zero) * weight.scale->load({group, row});
}

double awq_value(const Weight& weight, std::int64_t row, std::int64_t column) {
  const std::int64_t group = column / weight.group_size;
  const int code = nibble(weight.data, column, row / 8, awq_nibble(row));
  const int zero =
      weight.zeros ? nibble(*weight.zeros, group, row / 8, awq_nibble(row)) : kMiddleCode;
  return (code - zero) * weight.scale->load({group, row});
}

double value_at(const Weight& weight, std::int64_t row, std::int64_t column) {
  switch (weight.format) {
    case WeightFormat::fp8:
      return fp8_value(weight, row, column);
    case WeightFormat::int4:
      return int4_value(weight, row, column);
    case WeightFormat::gptq:
    case WeightFormat::gptq_v2:
      return gptq_value(weight, row, column);
    case WeightFormat::awq:
      return awq_value(weight, row, column);
    default:
      return weight.data.load({row, column});
  }
}

std::vector<double> gguf_row(const Weight& weight, std::int64_t row) {
  const BlockFormat& format = block_format(weight.format);
  const std::uint8_t* start = weight.data.as<const std::uint8_t>() + weight.data.offset({row, 0});
  std::vector<double> values;
  for (std::int64_t block = 0; block < weight.columns() / format.columns; ++block) {
    const std::vector<double> part =
        dequantize_gguf_block(weight.format, start + block * format.bytes);
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

}  // namespace

std::vector<double> dequantize_row(const Weight& weight, std::int64_t row) {
  if (is_block_format(weight.format)) return gguf_row(weight, row);
  std::vector<double> values(static_cast<std::size_t>(weight.columns()));
  for (std::int64_t column = 0; column < weight.columns(); ++column) {
    values[static_cast<std::size_t>(column)] = value_at(weight, row, column);
  }
  return values;
}

std::int64_t input_column(const Weight& weight, std::int64_t column) {
  if (!weight.perm) return column;
  return weight.perm->as<const std::int32_t>()[weight.perm->offset({column})];
}

}  // namespace quire::reference
