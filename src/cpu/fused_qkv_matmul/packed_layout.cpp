// SPDX-License-Identifier: Apache-2.0
#include "cpu/fused_qkv_matmul/packed_layout.h"

#include "core/block_format.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kDepthUnit = 32;  // the deepest step of an engine
constexpr std::int64_t kFp8Block = 128;
constexpr std::int64_t kLine = 64;

int width_of(WeightPacking packing) {
  switch (packing) {
    case WeightPacking::panels_16:
      return 16;
    case WeightPacking::panels_32:
      return 32;
    default:
      return 8;
  }
}

// Codes of 4 bits stay what they are, all others become the numbers themselves.
int bits_of(const Weight& weight) {
  if (const BlockFormat* block = find_block_format(weight.format)) {
    return block->code_bits == 4 ? 4 : 8;
  }
  if (weight.format == WeightFormat::dense) return bits(weight.packed.dtype);
  return weight.format == WeightFormat::fp8 ? 8 : 4;
}

std::int64_t group_of(const Weight& weight) {
  if (const BlockFormat* block = find_block_format(weight.format)) return block->group;
  if (weight.format == WeightFormat::dense) return 0;
  if (weight.format != WeightFormat::fp8) return weight.group_size;
  return weight.packed.scale_group == 0 ? weight.packed.columns : weight.packed.scale_group;
}

// Powers of two are exact in bf16; the K-quants' scales are products of two numbers.
DType scale_dtype_of(const Weight& weight) {
  if (const BlockFormat* block = find_block_format(weight.format)) {
    if (!block->is_one_group()) return DType::f32;
    return block->is_e8m0 ? DType::bf16 : DType::f16;
  }
  return is_grouped_format(weight.format) ? weight.packed.scale_dtype : DType::f32;
}

DType min_dtype_of(const Weight& weight) {
  const BlockFormat* block = find_block_format(weight.format);
  return block != nullptr && block->is_one_group() ? DType::f16 : DType::f32;
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

PackedLayout packed_layout(const Weight& weight, bool has_perm) {
  PackedLayout layout{};
  layout.packing = weight.packing;
  layout.width = width_of(weight.packing);
  layout.bits = bits_of(weight);
  layout.depth = round_up(weight.packed.columns, kDepthUnit);
  layout.panels = round_up(weight.packed.rows, layout.width) / layout.width;
  layout.panel_bytes = layout.depth * layout.width * layout.bits / 8;
  layout.group = group_of(weight);
  layout.groups =
      layout.group == 0 ? 0 : round_up(weight.packed.columns, layout.group) / layout.group;
  layout.scale_dtype = scale_dtype_of(weight);
  layout.has_zeros = weight.packed.has_zeros;
  const BlockFormat* block = find_block_format(weight.format);
  layout.has_mins = block != nullptr && block->has_mins();
  layout.min_dtype = min_dtype_of(weight);

  const std::int64_t scales = layout.panels * layout.groups * layout.width;
  layout.scale_offset = round_up(layout.panels * layout.panel_bytes, kLine);
  layout.zero_offset = round_up(layout.scale_offset + bytes_for(layout.scale_dtype, scales), kLine);
  layout.min_offset = round_up(layout.zero_offset + (layout.has_zeros ? scales : 0), kLine);
  const std::int64_t mins = layout.has_mins ? bytes_for(layout.min_dtype, scales) : 0;
  layout.perm_offset = round_up(layout.min_offset + mins, kLine);
  const std::int64_t perm = has_perm ? bytes_for(DType::i32, weight.packed.columns) : 0;
  layout.bytes = round_up(layout.perm_offset + perm, kLine);
  return layout;
}

PackedShape packed_shape(const Weight& weight) {
  const bool has_blocks = weight.format == WeightFormat::fp8 && weight.scale->shape[1] != 1;
  return {.rows = weight.rows(),
          .columns = weight.columns(),
          .dtype = weight.data.dtype,
          .scale_dtype = weight.scale.has_value() ? weight.scale->dtype : DType::f32,
          .scale_group = has_blocks ? kFp8Block : 0,
          .has_zeros = weight.zeros.has_value()};
}

}  // namespace quire::cpu
