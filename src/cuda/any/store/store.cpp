// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <limits>

#include "cuda/any/store/alignment.h"
#include "cuda/any/store/launch.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/sm90/store/launch.h"

namespace quire::cuda::any::store {

namespace {

StoreParams params_of(const TensorView& x, const TensorView& row_offsets, const KvLayerView& view) {
  const auto bytes = [&](std::int64_t elements) { return bytes_for(x.dtype, elements); };
  return {.x = x.as<const std::byte>(),
          .x_dtype = x.dtype,
          .token_stride_bytes = bytes(x.strides[0]),
          .head_stride_bytes = bytes(x.strides[1]),
          .last_stride = x.strides[2],
          .tokens = x.shape[0],
          .row_offsets = row_offsets.as<const std::uint32_t>(),
          .view = view,
          .scales_are_static = view.scales.defined() && view.scales.is_static()};
}

KvLayerView view_of(const PagedKVCache& cache, std::int64_t layer, KvSide side) {
  return side == KvSide::key ? cache.key(layer) : cache.value(layer);
}

// Vectors that share a scale, if the row has one rule for all of it.
struct GranuleRule {
  bool fits = true;
  int vectors = -1;  // -1: nothing is scaled; 0: the whole row
  bool has_wide = false;
};

GranuleRule granule_rule(const RowFormat& format) {
  GranuleRule rule;
  std::int32_t begin = 0;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[static_cast<std::size_t>(p)];
    const std::int32_t end = begin + part.width;
    if (part.scale_source != ScaleSource::none) {
      const bool in_row = part.scale_source == ScaleSource::in_row;
      const bool is_whole = in_row ? part.granularity >= part.width && format.num_parts == 1
                                   : part.granularity >= format.width();
      const int vectors = is_whole ? 0 : part.granularity / kVectorColumns;
      const bool is_first = rule.vectors < 0;
      rule.fits = rule.fits && (is_first || rule.vectors == vectors);
      rule.fits = rule.fits && (is_whole || is_multiple(part.granularity, kVectorColumns));
      rule.fits = rule.fits && (is_whole || std::has_single_bit(static_cast<unsigned>(vectors)));
      // Groups start at a multiple of their size, so that lanes of one group are neighbours.
      rule.fits = rule.fits && (is_whole || !in_row || is_multiple(begin, part.granularity));
      const bool is_wide = bits(part.dtype) > 8;
      rule.fits = rule.fits && (!is_wide || is_whole);
      rule.has_wide = rule.has_wide || is_wide;
      rule.vectors = vectors;
    }
    begin = end;
  }
  return rule;
}

}  // namespace

bool can_copy(const StoreParams& params) {
  const RowFormat& format = params.view.row_format;
  return format.is_uniform() && format.parts[0].dtype == params.x_dtype &&
         is_multiple(format.row_bytes, kVectorBytes) &&
         rows_are_aligned(params, kVectorBytes, kVectorBytes);
}

bool can_copy_scales(const StoreParams& params) {
  const KvLayerView& view = params.view;
  const ScaleLayerView& scales = view.scales;
  const std::int64_t slots = view.row_format.plane_slots();
  const std::int64_t size = bits(scales.dtype) / 8;
  const bool is_dense = params.last_stride == 1 && params.head_stride_bytes == slots * size &&
                        scales.slot_stride == 1 && scales.head_stride == slots;
  return view.row_format.is_uniform() && params.x_dtype == scales.dtype && is_dense &&
         is_multiple(view.num_heads * slots * size, kVectorBytes) &&
         is_aligned(params.x, kVectorBytes) &&
         is_multiple(params.token_stride_bytes, kVectorBytes) &&
         is_aligned(scales.data, kVectorBytes) &&
         is_multiple(scales.page_stride * size, kVectorBytes) &&
         is_multiple(scales.token_stride * size, kVectorBytes);
}

std::optional<EncodeLayout> encode_layout(const StoreParams& params) {
  const RowFormat& format = params.view.row_format;
  if (bits(params.x_dtype) == 8 || !parts_are_aligned(format)) return std::nullopt;
  bool has_wide_part = false;
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    has_wide_part = has_wide_part || bits(format.parts[static_cast<std::size_t>(p)].dtype) > 8;
  }
  if (!rows_are_aligned(params, kVectorBytes, has_wide_part ? kVectorBytes : 8)) {
    return std::nullopt;
  }
  const GranuleRule rule = granule_rule(format);
  const int vectors = format.width() / kVectorColumns;
  const int lanes = vectors <= 8 ? 8 : vectors <= 16 ? 16 : 32;
  const int slots = (vectors + lanes - 1) / lanes;
  if (!rule.fits || slots > 4 || rule.vectors > lanes) return std::nullopt;
  return EncodeLayout{
      .lanes = lanes,
      .slots = slots,
      .granule_vectors = rule.vectors < 0 ? 1 : rule.vectors,
      .granule_shift = std::countr_zero(static_cast<unsigned>(std::max(rule.vectors, 1))),
      .granule_is_wide = rule.has_wide,
      .has_scales = rule.vectors >= 0,
      .coded = eight_bit_type(format),
      .heads = Divisor(static_cast<unsigned>(params.view.num_heads))};
}

std::string refuse(const StoreProblem& problem) {
  return refuse_unless_sm80(problem.device);
}

namespace {

// What both sides ask for, if they ask for the same.
template <typename Ask> auto of_every_side(const StoreSides& rows, Ask ask) {
  auto layout = ask(rows.sides[0]);
  if (rows.num_sides > 1 && layout != ask(rows.sides[1])) layout = {};
  return layout;
}
template <typename Ask> auto of_every_side(const StoreParams& rows, Ask ask) {
  return ask(rows);
}

template <typename Rows> void launch_store(const Rows& rows, int device, cudaStream_t stream) {
  if (of_every_side(rows, can_copy)) return launch_copy(rows, stream);
  const auto code = of_every_side(
      rows, [&](const StoreParams& side) { return code_layout(side, compute_capability(device)); });
  if (code.has_value() && code->staged_row_bytes > 0) {
    return sm90::store::launch_code_rows(rows, *code, num_sms(device), stream);
  }
  if (code.has_value()) return launch_code(rows, *code, num_sms(device), stream);
  if (const auto layout = of_every_side(rows, encode_layout)) {
    return launch_encode(rows, *layout, stream);
  }
  launch_general(rows, stream);
}

StoreSides sides_of(const StoreArgs& args, const StoreParams& first) {
  StoreSides rows{.sides = {first, first}, .num_sides = 1, .slots = {}};
  if (args.value.has_value()) {
    rows.sides[1] = params_of(*args.value, args.row_offsets, args.cache.value(args.layer));
    rows.num_sides = 2;
  }
  if (args.slots.has_value()) {
    rows.slots = SlotList::of(*args.slots);
    for (StoreParams& side : rows.sides) side.view.batch = 0;  // no length is read
  }
  return rows;
}

}  // namespace

void store(const StoreArgs& args, const Context& context) {
  const DeviceScope scope(args.x.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const StoreParams params =
      params_of(args.x, args.row_offsets, view_of(args.cache, args.layer, args.side));
  if (params.tokens == 0) return;
  const int device = args.x.device.index;
  const bool is_plain = !args.value.has_value() && !args.slots.has_value();
  if (is_plain) return launch_store(params, device, stream);
  launch_store(sides_of(args, params), device, stream);
}

void store_scales(const StoreScalesArgs& args, const Context& context) {
  const DeviceScope scope(args.scales.device);
  const StoreParams params =
      params_of(args.scales, args.row_offsets, view_of(args.cache, args.layer, args.side));
  if (params.tokens == 0) return;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (can_copy_scales(params)) return launch_copy_scales(params, stream);
  launch_scales(params, stream);
}

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

// Scales that all pages and tokens share: a thread of launch_code() reads its one once. A row that has a place has a scale.
bool are_fixed(const ScaleLayerView& scales, const KvLayerView& rows) {
  return scales.page_stride == 0 && scales.token_stride == 0 && scales.dtype == DType::f32 &&
         scales.num_pages >= rows.num_pages && scales.page_table == rows.page_table &&
         scales.page_table_stride == rows.page_table_stride;
}

// Nothing where no kernel of launch_code() has such scales.
std::optional<TokenScaling> scaling_of(const StoreParams& params, int granule) {
  const RowPart& coded = params.view.row_format.parts[0];
  if (coded.scale_source == ScaleSource::none) return TokenScaling::none;
  const bool is_static = coded.scale_source == ScaleSource::plane && params.scales_are_static;
  if (!is_static) return granule == 0 ? std::nullopt : std::optional(TokenScaling::granules);
  const bool fits = are_fixed(params.view.scales, params.view) && granule != 0;
  return fits ? std::optional(TokenScaling::fixed) : std::nullopt;
}

// All but what a CTA takes.
CodeLayout row_layout(const KvLayerView& view, int granule, TokenScaling scaling) {
  const RowPart& coded = view.row_format.parts[0];
  const bool in_row = coded.scale_source == ScaleSource::in_row;
  return {
      .coded = vector_run(coded, 0, true),
      .copied = vector_run(view.row_format.parts[1], coded.width, view.row_format.num_parts == 2),
      .block_tokens = 0,
      .block_rows = 0,
      .scaling = scaling,
      .scales_are_in_row = in_row,
      .granule_shift = std::countr_zero(static_cast<unsigned>(std::max(granule, 1))),
      .scale_offset_bytes = in_row ? coded.scale_offset_bytes : 0,
      .scale_head_bytes = in_row ? view.head_stride_bytes : 4 * view.scales.head_stride,
      .scale_slot_bytes = in_row ? 4 : 4 * view.scales.slot_stride,
      .staged_row_bytes = 0};
}

}  // namespace

std::optional<CodeLayout> code_layout(const StoreParams& params, ComputeCapability found) {
  if (!is_made_of_vectors(params)) return std::nullopt;
  const KvLayerView& view = params.view;
  const int granule = granule_vectors(view);
  const std::optional<TokenScaling> scaling = scaling_of(params, granule);
  if (!scaling.has_value()) return std::nullopt;
  CodeLayout layout = row_layout(view, granule, *scaling);
  const BlockSize most =
      block_size(static_cast<unsigned>(view.num_heads), layout.coded.per_row.value(),
                 layout.copied.is_used ? layout.copied.per_row.value() : 0, *scaling);
  // A token's rows and scales are reached in 31 bits.
  const std::int64_t reach =
      view.num_heads * std::max(view.head_stride_bytes, layout.scale_head_bytes) +
      layout.coded.per_row.value() * layout.scale_slot_bytes;
  if (most.tokens == 0 || reach > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  layout.block_rows = most.rows;
  const std::int64_t spread = (params.tokens + kManyBlocks - 1) / kManyBlocks;
  layout.block_tokens = static_cast<unsigned>(std::clamp<std::int64_t>(spread, 1, most.tokens));
  if (runs_sm90(found) && can_stage(params, layout))
    layout.staged_row_bytes = view.row_format.row_bytes;
  return layout;
}

}  // namespace quire::cuda::any::store
