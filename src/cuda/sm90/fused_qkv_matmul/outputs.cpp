// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/outputs.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "cuda/common/matmul/params.h"
#include "cuda/common/mma/row_order.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

namespace {

// Without a cache kernels look up each token's row all the same, and find no page: of one sequence whose length and
// first token are any word on the device, such as the weight's first, and cancel out.
void add_no_rows(const Projection& args, QkvOutputs& outputs) {
  const auto* word = args.weight.data.as<const std::uint32_t>();
  outputs.keys = {
      .page_size = std::numeric_limits<std::int32_t>::max(), .cache_lengths = word, .batch = 1};
  outputs.row_offsets = word;
  outputs.batch = 1;
}

void add_rows(const Projection& args, QkvOutputs& outputs) {
  const KvLayerView keys = args.cache->key(args.layer);
  const bool is_mla = args.cache->is_mla();
  outputs.keys = keys;
  outputs.kv_dtype = keys.row_format.parts[0].dtype;
  outputs.head_dim = keys.width();
  outputs.kv_dim = keys.num_heads * keys.width();
  outputs.columns += (is_mla ? 1 : 2) * outputs.kv_dim;
  outputs.heads_are_dense =
      keys.num_heads == 1 || keys.head_stride_bytes == keys.row_format.row_bytes;
  outputs.value_offset_bytes = is_mla ? 0 : args.cache->value(args.layer).data - keys.data;
  outputs.row_offsets = args.row_offsets->as<const std::uint32_t>();
  outputs.batch = static_cast<int>(args.cache->batch());
}

}  // namespace

QkvOutputs make_outputs(const Projection& args) {
  const int q_dim = static_cast<int>(args.out.shape[1]);
  QkvOutputs outputs{
      .q = args.out.as<std::byte>(),
      .q_stride_bytes = bytes_for(args.out.dtype, args.out.strides[0]),
      .q_dtype = args.out.dtype,
      .q_dim = q_dim,
      .columns = q_dim,
      .tokens = static_cast<int>(args.x.shape[0]),
      .bias = args.bias.has_value() ? args.bias->as<const std::byte>() : nullptr,
      .bias_dtype = args.bias.has_value() ? args.bias->dtype : DType::f32,
  };
  args.cache == nullptr ? add_no_rows(args, outputs) : add_rows(args, outputs);
  return outputs;
}

namespace {

constexpr int kMostColumns = 256;  // that two blocks have, whatever the product

// A run of 8 columns is one vector.
bool is_coded_part(const RowPart& part) {
  const bool scale_is_aligned =
      part.scale_source != ScaleSource::in_row || part.scale_offset_bytes % 4 == 0;
  return bits(part.dtype) == 8 && part.scale_source != ScaleSource::none && scale_is_aligned &&
         part.scale_dtype == DType::f32 && part.offset_bytes % 8 == 0;
}
bool is_rest(const RowPart& part) {
  return is_float(part.dtype) && part.scale_source == ScaleSource::none &&
         part.offset_bytes % 16 == 0;
}

// The part ends within the first granule of its plane, or has whole ones.
int granule_of(const RowPart& part) {
  return std::min(part.granularity, part.width);
}

}  // namespace

int coded_granule(const RowFormat& format, std::int64_t q_dim, bool is_mla) {
  const RowPart& part = format.parts[0];
  const bool has_parts =
      is_coded_part(part) &&
      (format.num_parts == 1 || (format.num_parts == 2 && is_rest(format.parts[1])));
  if (!has_parts) return 0;
  const int granule = granule_of(part);
  const bool fits = granule % kGroupRows == 0 && granule <= kMostColumns &&
                    std::has_single_bit(static_cast<unsigned>(granule));
  if (!fits || part.width % granule != 0 || q_dim % granule != 0) return 0;
  // Rows follow each other, unless there is one.
  return is_mla || format.width() % granule == 0 ? granule : 0;
}

KvCodes make_codes(const Projection& args) {
  const KvLayerView keys = args.cache->key(args.layer);
  const RowPart& part = keys.row_format.parts[0];
  const RowPart& rest = keys.row_format.parts[1];
  const ScaleLayerView& scales = keys.scales;
  const bool in_row = part.scale_source == ScaleSource::in_row;
  KvCodes codes{.granule = granule_of(part),
                .coded_columns = part.width,
                .codes_offset_bytes = part.offset_bytes,
                .rest_offset_bytes = rest.offset_bytes,
                .rest_dtype = rest.dtype,
                .scales_are_in_row = in_row,
                .scales_are_static = !in_row && scales.is_static(),
                .scale_offset_bytes = in_row ? part.scale_offset_bytes : 0,
                .scale_head_bytes = in_row ? keys.head_stride_bytes : 4 * scales.head_stride,
                .scale_granule_bytes = in_row ? 4 : 4 * scales.slot_stride};
  if (args.cache->is_mla()) return codes;
  const KvLayerView values = args.cache->value(args.layer);
  codes.scale_value_bytes = in_row ? values.data - keys.data : values.scales.data - scales.data;
  return codes;
}

QkvScales make_scales(const Projection& args) {
  if (!args.input_scale.has_value() || !args.weight.scale.has_value()) return {};
  const auto stride = [](const TensorView& scale, int dim) {
    return scale.shape[dim] == 1 ? 0 : scale.strides[dim];
  };
  const auto side_by_side = [&](const TensorView& scale) {
    return stand_side_by_side(scale.as<const float>(), stride(scale, 0), stride(scale, 1),
                              scale.shape[1]);
  };
  const TensorView& x = *args.input_scale;
  const TensorView& weight = *args.weight.scale;
  // One block of K is neither here nor there: it is a row's scale, unless rows come in 128s too.
  const bool weight_by_block = weight.shape[0] != 1 && weight.shape[0] != args.weight.data.shape[0];
  return {.x = x.as<const float>(),
          .x_token_stride = stride(x, 0),
          .x_block_stride = stride(x, 1),
          .weight = weight.as<const float>(),
          .weight_row_stride = stride(weight, 0),
          .weight_block_stride = stride(weight, 1),
          .x_by_block = x.shape[1] > 1,
          .weight_by_block = weight_by_block || weight.shape[1] > 1,
          .x_side_by_side = side_by_side(x),
          .weight_side_by_side = side_by_side(weight)};
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
