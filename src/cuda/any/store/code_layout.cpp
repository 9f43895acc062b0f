// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <limits>

#include "cuda/any/store/alignment.h"

namespace quire::cuda::any::store {
namespace {

constexpr std::int64_t kManyBlocks = 384;  // fewer tokens per block before there are fewer blocks

// Vectors of the first part that share an f32 scale: a power of two up to a warp, whole in every row. 0: it
// is not so.
int granule_vectors(const KvLayerView& view) {
  const RowFormat& format = view.row_format;
  const RowPart& part = format.parts[0];
  const bool in_row = part.scale_source == ScaleSource::in_row;
  const DType scale_dtype = in_row ? part.scale_dtype : view.scales.dtype;
  const std::int32_t whole = in_row ? part.width : format.width();
  const std::int32_t columns = part.granularity >= whole ? part.width : part.granularity;
  const int vectors = columns / kVectorColumns;
  const bool fits = scale_dtype == DType::f32 && is_multiple(columns, kVectorColumns) &&
                    std::has_single_bit(static_cast<unsigned>(vectors)) && vectors <= 32 &&
                    is_multiple(part.width, columns);
  return fits ? vectors : 0;
}

// Tokens of one row that is written whole, its scales among it.
bool can_stage(const StoreParams& params, const CodeLayout& layout) {
  const RowFormat& format = params.view.row_format;
  const unsigned vectors = layout.coded.per_row.value();
  const unsigned copied = layout.copied.is_used ? layout.copied.per_row.value() : 0;
  const unsigned written = vectors * 8 + (vectors >> layout.granule_shift) * 4 + copied * 16;
  return layout.scales_are_in_row && params.view.num_heads == 1 && vectors == kCodedRowVectors &&
         copied <= 16 && static_cast<int>(written) == format.row_bytes &&
         format.row_bytes <= kMostStagedRowBytes && is_multiple(format.row_bytes, kVectorBytes) &&
         rows_are_aligned(params, kVectorBytes, kVectorBytes);
}

// Codes, and at most one more part that is copied: all in vectors.
bool is_made_of_vectors(const StoreParams& params) {
  const KvLayerView& view = params.view;
  const RowFormat& format = view.row_format;
  const RowPart& copied = format.parts[1];
  const bool has_copied = format.num_parts == 2;
  return bits(params.x_dtype) == 16 && is_fp8(format.parts[0].dtype) && format.num_parts <= 2 &&
         view.num_heads <= 0xffff &&
         (!has_copied ||
          (copied.dtype == params.x_dtype && copied.scale_source == ScaleSource::none)) &&
         parts_are_aligned(format) &&
         rows_are_aligned(params, kVectorBytes, has_copied ? kVectorBytes : 8);
}

VectorRun vector_run(const RowPart& part, std::int64_t first_column, bool is_used) {
  const unsigned vectors = is_used ? static_cast<unsigned>(part.width / kVectorColumns) : 1;
  return {.per_row = Divisor(vectors),
          .x_offset_bytes = first_column * 2,
          .offset_bytes = part.offset_bytes,
          .is_used = is_used};
}

// All but what a thread block takes.
CodeLayout row_layout(const KvLayerView& view, int granule) {
  const RowPart& coded = view.row_format.parts[0];
  const bool in_row = coded.scale_source == ScaleSource::in_row;
  return {
      .coded = vector_run(coded, 0, true),
      .copied = vector_run(view.row_format.parts[1], coded.width, view.row_format.num_parts == 2),
      .block_tokens = 0,
      .block_rows = 0,
      .has_scales = coded.scale_source != ScaleSource::none,
      .scales_are_in_row = in_row,
      .granule_shift = std::countr_zero(static_cast<unsigned>(std::max(granule, 1))),
      .scale_offset_bytes = in_row ? coded.scale_offset_bytes : 0,
      .scale_head_bytes = in_row ? view.head_stride_bytes : 4 * view.scales.head_stride,
      .scale_slot_bytes = in_row ? 4 : 4 * view.scales.slot_stride,
      .staged_row_bytes = 0};
}

}  // namespace

std::optional<CodeLayout> code_layout(const StoreParams& params) {
  if (!is_made_of_vectors(params)) return std::nullopt;
  const KvLayerView& view = params.view;
  const int granule = granule_vectors(view);
  CodeLayout layout = row_layout(view, granule);
  if (layout.has_scales && (params.scales_are_static || granule == 0)) return std::nullopt;
  const BlockSize most =
      block_size(static_cast<unsigned>(view.num_heads), layout.coded.per_row.value(),
                 layout.copied.is_used ? layout.copied.per_row.value() : 0, layout.has_scales);
  // A token's rows and scales are reached in 31 bits.
  const std::int64_t reach =
      view.num_heads * std::max(view.head_stride_bytes, layout.scale_head_bytes) +
      layout.coded.per_row.value() * layout.scale_slot_bytes;
  if (most.tokens == 0 || reach > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  layout.block_rows = most.rows;
  const std::int64_t spread = (params.tokens + kManyBlocks - 1) / kManyBlocks;
  layout.block_tokens = static_cast<unsigned>(std::clamp<std::int64_t>(spread, 1, most.tokens));
  if (can_stage(params, layout)) layout.staged_row_bytes = view.row_format.row_bytes;
  return layout;
}

}  // namespace quire::cuda::any::store
