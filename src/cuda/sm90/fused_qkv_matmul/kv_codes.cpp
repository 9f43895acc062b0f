// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/kv_codes.h"

#include <algorithm>
#include <bit>

#include "cuda/common/mma/row_order.h"

namespace quire::cuda::sm90::fused_qkv_matmul {
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

KvCodes make_codes(const FusedQkvArgs& args) {
  const KvLayerView keys = args.cache.key(args.layer);
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
  if (args.cache.is_mla()) return codes;
  const KvLayerView values = args.cache.value(args.layer);
  codes.scale_value_bytes = in_row ? values.data - keys.data : values.scales.data - scales.data;
  return codes;
}

}  // namespace quire::cuda::sm90::fused_qkv_matmul
