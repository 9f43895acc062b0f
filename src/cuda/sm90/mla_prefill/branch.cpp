// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/branch.h"

#include <algorithm>

#include "cuda/any/companions.h"
#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/sm90/mla_prefill/params.h"
#include "cuda/sm90/mla_prefill/project.h"
#include "quire/tile_builders.h"

namespace quire::cuda::sm90::mla_prefill {

namespace {

struct BranchScratch {
  ChunkSpans spans;
  float* new_rows;       // [tokens, latent + rope]
  std::byte* latents;    // [rows, latent], of q's dtype or e4m3
  float* latent_scales;  // [rows, scale columns], e4m3 only
  std::byte* rope_rows;  // [rows, rope], of q's dtype or e4m3
  std::byte* projected;  // [rows, group, K | V], of q's dtype or e4m3; in either order
  float* chain_sums;     // [tokens, group, value], more than one chunk only
  float* chain_rows;     // [tokens, group, 2]
  std::byte* codes;      // [group, rows, K | V], e4m3, where the projection does not write it
};

BranchScratch carve_branch(Carver& carver, const BranchShape& shape) {
  constexpr std::int64_t kBytes = BranchShape::kElementBytes;
  const std::int64_t spans = shape.max_chunks * shape.batch;
  const std::int64_t kept = shape.max_chunks > 1 ? shape.tokens * shape.group() : 0;
  const std::int64_t latents = shape.rows * shape.latent;
  BranchScratch scratch{};
  scratch.spans.first = carver.take<std::uint32_t>(spans);
  scratch.spans.end = carver.take<std::uint32_t>(spans);
  scratch.spans.buffer_rows = carver.take<std::uint32_t>(spans);
  scratch.spans.links = carver.take<std::uint32_t>(shape.max_chunks);
  scratch.spans.next_tiles = carver.take<int>(shape.groups() * shape.max_chunks);
  scratch.spans.zeros = carver.take<std::uint32_t>(2);
  scratch.new_rows = carver.take<float>(shape.tokens * (shape.latent + BranchShape::kRope));
  scratch.latents = carver.take<std::byte>(shape.is_fp8 ? latents : latents * kBytes);
  scratch.latent_scales = carver.take<float>(shape.rows * shape.scale_columns());
  scratch.rope_rows = carver.take<std::byte>(shape.rows * BranchShape::kRope * kBytes);
  scratch.projected =
      carver.take<std::byte>(shape.rows * shape.group() * BranchShape::kProjected * kBytes);
  scratch.chain_sums = carver.take<float>(kept * BranchShape::kValue);
  scratch.chain_rows = carver.take<float>(kept * 2);
  const std::int64_t codes = shape.rounds_projected() ? shape.rows * shape.group() : 0;
  scratch.codes = carver.take<std::byte>(codes * BranchShape::kProjected);
  return scratch;
}

// Of q's rope columns that are rotated beside the gather where the projection can do the rest: what
// memory has time for. Measured with 64 MiB of them: all beside the projection 1138 µs for the branch,
// 8 MiB here 1130, 16 1126, 32 1132.
constexpr std::int64_t kGatherBytes = std::int64_t{16} << 20;

// K and V of the heads that are worked on together: half of an H200's L2.
constexpr std::int64_t kSectionBytes = 24 << 20;

template <DType kDType> auto launcher(bool is_modified) {
  return is_modified ? launch_projected<ProjectedAttention<kDType, Scores::modified>>
                     : launch_projected<ProjectedAttention<kDType, Scores::scaled>>;
}

constexpr PrefillConfig kConfig = ProjectedAttention<DType::bf16, Scores::scaled>::kConfig;
constexpr PrefillConfig kFp8 = Fp8Attention<DType::bf16>::kConfig;
static_assert(kFp8.rows() == kConfig.rows());

// Boxes of a swizzle column's columns × rows, 128-byte rows swizzled.
TensorMap swizzle_column_map(const RowMatrix& matrix, int rows, void* data) {
  return encode_tensor_map(
      make_tile(matrix,
                {.swizzle = Swizzle::b128, .box_rows = rows, .l2_promotion = L2Promotion::b256}),
      data);
}

class Branch {
 public:
  Branch(const MlaPrefillArgs& args, const BranchShape& shape, const VisibleRange& visible,
         const Context& context)
      : args_(args),
        context_(context),
        stream_(static_cast<cudaStream_t>(context.stream)),
        shape_(shape),
        visible_(visible),
        view_(args.cache.key(args.layer)),
        chunks_(any::mla_prefill::chunk_table(args.chunks)) {
    Carver carver(context.workspace);
    scratch_ = carve_branch(carver, shape);
    chunks_.max_chunks = shape.max_chunks;
  }

  void run() const {
    if (!finishes_rows()) {
      finish_latent_rows(new_latent_rows(args_), scratch_.new_rows, context_);
    }
    // Where every sequence is decoded there may be no chunk whose kernels would rotate beside their work.
    if (shape_.max_chunks == 0 && args_.freqs_cis.has_value()) rotate_queries();
    for (std::int64_t head = 0; head < shape_.heads; head += shape_.group()) {
      const Heads heads{head, std::min(shape_.group(), shape_.heads - head)};
      for (std::int64_t chunk = 0; chunk < shape_.max_chunks; ++chunk) {
        ProjectionParams up = projection(chunk, heads);
        QueryRotation beside_gather;
        if (head == 0 && chunk == 0) beside_gather = share_rotation(up);
        // A single chunk's rows are still there from the first group.
        if (head == 0 || shape_.max_chunks > 1) gather(chunk, heads, beside_gather);
        project_rows(up, stream_);
        if (has_fp8_products() && !projects_codes()) fp8_rows(chunk, heads);
        attend(chunk, heads);
      }
    }
  }

 private:
  struct Heads {
    std::int64_t first;
    std::int64_t count;
  };

  bool is_modified() const {
    return args_.softcap > 0 || args_.alibi_slopes.has_value() ||
           token_intervals(args_.mask).are_given();
  }
  // Whether this call's products are of e4m3.
  bool has_fp8_products() const { return shape_.has_fp8_products && !is_modified(); }
  const std::uint32_t* row_offsets() const { return args_.row_offsets.as<const std::uint32_t>(); }
  bool projects_codes() const { return has_fp8_products() && shape_.heads_first(); }

  void fp8_rows(std::int64_t chunk, const Heads& heads) const {
    launch_fp8_rows({.projected = scratch_.projected,
                     .live_rows = chunks_.buffer_lengths + chunk * chunks_.lengths_stride,
                     .rows = static_cast<int>(shape_.rows),
                     .heads = static_cast<int>(heads.count),
                     .codes = scratch_.codes},
                    stream_);
  }

  TensorView matrix(std::byte* data, DType dtype, std::int64_t rows, std::int64_t columns) const {
    return TensorView::contiguous(data, dtype, {rows, columns}, args_.q.device);
  }

  TensorView projected(const Heads& heads) const {
    constexpr std::int64_t kColumns = BranchShape::kProjected;
    const DType dtype = projects_codes() ? DType::fp8_e4m3 : args_.q.dtype;
    TensorView view = TensorView::contiguous(scratch_.projected, dtype,
                                             {shape_.rows, heads.count, kColumns}, args_.q.device);
    if (shape_.heads_first()) {
      view.strides[0] = kColumns;
      view.strides[1] = shape_.rows * kColumns;
    }
    return view;
  }

  // One matrix of all heads: a group is a run of its rows, and of its blocks of scales, of which a
  // head has whole ones.
  ProjectionParams projection(std::int64_t chunk, const Heads& heads) const {
    constexpr std::int64_t kColumns = BranchShape::kProjected;
    const DType x_dtype = shape_.is_fp8 ? args_.kv_b_proj.dtype : args_.q.dtype;
    TensorView weight = args_.kv_b_proj;
    weight.shape[0] = heads.count * kColumns;
    weight.data = weight.as<std::byte>() +
                  bytes_for(weight.dtype, heads.first * kColumns * weight.strides[0]);
    ProjectionParams params{.x = matrix(scratch_.latents, x_dtype, shape_.rows, shape_.latent),
                            .weight = weight,
                            .y = projected(heads),
                            .live_rows = chunks_.buffer_lengths + chunk * chunks_.lengths_stride,
                            .rotation = {},
                            .zeros = scratch_.spans.zeros};
    if (shape_.is_fp8) {
      const TensorView& scale = *args_.kv_b_proj_scale;
      params.x_scales = scratch_.latent_scales;
      params.x_scale_stride = shape_.scale_columns();
      params.weight_scales = scale.as<const float>() + heads.first *
                                                           (kColumns / BranchShape::kScaleColumns) *
                                                           scale.strides[0];
      params.weight_scale_strides[0] = scale.strides[0];
      params.weight_scale_strides[1] = scale.strides[1];
    }
    return params;
  }

  // q's rope columns in place, beside the gather, which waits for memory but asks little of it, and
  // beside the first projection if it can; the keys' are rotated with the new rows. Returns the gather's
  // share.
  QueryRotation share_rotation(ProjectionParams& first) const {
    if (!args_.freqs_cis.has_value()) return {};
    const QueryRotation all = rotation();
    first.rotation = all;
    const bool is_beside = rotates_queries(first);
    if (!is_beside) first.rotation = {};
    if (!gathers_plain()) {
      if (!is_beside) rotate_queries();
      return {};
    }
    QueryRotation share = all;
    if (is_beside) {
      const std::int64_t token_bytes =
          shape_.heads * BranchShape::kRope * BranchShape::kElementBytes;
      share.tokens =
          static_cast<int>(std::min<std::int64_t>(all.tokens, kGatherBytes / token_bytes));
      first.rotation.first_token = share.tokens;
      if (share.tokens == all.tokens) first.rotation = {};
    }
    return share.tokens == 0 ? QueryRotation{} : share;
  }

  void rotate_queries() const {
    any::rope::rope({.q = args_.q,
                     .row_offsets = args_.row_offsets,
                     .cache = args_.cache,
                     .layer = args_.layer,
                     .freqs_cis = *args_.freqs_cis,
                     .interleaved = true,
                     .rotate_key = false,
                     .out = args_.q},
                    context_);
  }

  QueryRotation rotation() const {
    const TensorView& q = args_.q;
    return {.q = q.as<std::byte>() + bytes_for(q.dtype, BranchShape::kNope),
            .token_bytes = bytes_for(q.dtype, q.strides[0]),
            .head_bytes = bytes_for(q.dtype, q.strides[1]),
            .tokens = static_cast<int>(shape_.tokens),
            .heads = static_cast<int>(shape_.heads),
            .row_offsets = row_offsets(),
            .cache_lengths = view_.cache_lengths,
            .batch = view_.batch,
            .angles = latent_angles(args_.freqs_cis)};
  }

  SpanParams spans() const {
    return {.chunks = chunks_,
            .row_offsets = row_offsets(),
            .cache_lengths = view_.cache_lengths,
            .batch = view_.batch,
            .groups = shape_.groups(),
            .spans = scratch_.spans};
  }

  // Rows of q's dtype as they stand, which a warp holds.
  bool gathers_plain() const {
    return is_plain_layer(view_) && view_.row_format.parts[0].dtype == args_.q.dtype &&
           shape_.latent <= kMostPlainLatents;
  }

  // The gather finishes new rows on their way. Sequences that are decoded have none in the chunks.
  bool finishes_rows() const {
    return args_.freqs_cis.has_value() && gathers_plain() &&
           are_plain_rows(new_latent_rows(args_)) && args_.chunks.decode_tokens == 0;
  }

  // Spans of the call before are in use until it has ended: a first kernel may not begin earlier.
  void gather(std::int64_t chunk, const Heads& heads, const QueryRotation& rotation) const {
    const bool is_first = heads.first == 0 && chunk == 0;
    const bool follows_kernel = args_.freqs_cis.has_value() && !finishes_rows();
    const GatherRowsParams params{
        .cache = row_reader(view_),
        .row_offsets = row_offsets(),
        .chunks = chunks_,
        .chunk = chunk,
        .rows = shape_.rows,
        .latent = static_cast<std::int32_t>(shape_.latent),
        .rope = static_cast<std::int32_t>(BranchShape::kRope),
        .dtype = args_.q.dtype,
        .latents = scratch_.latents,
        .scales = shape_.is_fp8 ? scratch_.latent_scales : nullptr,
        .scale_stride = shape_.scale_columns(),
        .rope_rows = scratch_.rope_rows,
        .rope_dtype = has_fp8_products() ? DType::fp8_e4m3 : args_.q.dtype,
        .spans = is_first ? spans() : SpanParams{},
        .follows_kernel = !is_first || follows_kernel};
    if (!gathers_plain()) return launch_gather_rows(params, stream_);
    GatherPlainParams plain{
        .gather = params,
        .rotation = rotation,
        .rotating_blocks = rotation.q == nullptr ? 0 : num_sms(args_.q.device.index)};
    if (finishes_rows() && heads.first == 0) {
      const FinishRowsParams finish = finish_params(new_latent_rows(args_));
      plain.new_rows = finish.how;
      plain.kv = finish.kv;
      plain.kv_token_bytes = finish.kv_token_bytes;
    }
    launch_gather_plain(plain, stream_);
  }

  TensorMap query_map(const Heads& heads) const {
    RowMatrix rows = row_matrix_of(args_.q);
    rows.num_heads = heads.count;
    rows.base_offset_bytes = heads.first * rows.head_stride_bytes;
    return swizzle_column_map(rows, has_fp8_products() ? kFp8.part_rows() : kConfig.part_rows(),
                              args_.q.data);
  }

  ProjectedKeys keys(std::int64_t chunk, const Heads& heads) const {
    const TensorView projected = this->projected(heads);
    const TensorView rope =
        matrix(scratch_.rope_rows, args_.q.dtype, shape_.rows, BranchShape::kRope);
    return {.projected =
                swizzle_column_map(row_matrix_of(projected), kConfig.block_keys, projected.data),
            .rope = swizzle_column_map(row_matrix_of(rope), kConfig.block_keys, rope.data),
            .buffer_rows = scratch_.spans.buffer_rows + chunk * shape_.batch,
            .pages = PageTable::of_rows(view_)};
  }

  // As keys(), of e4m3: the rope's boxes are twice as wide as it is, zeros behind it.
  ProjectedKeys fp8_keys(std::int64_t chunk, const Heads& heads) const {
    constexpr DType kCode = DType::fp8_e4m3;
    constexpr std::int64_t kColumns = BranchShape::kProjected;
    const RowMatrix codes{.dtype = kCode,
                          .num_rows = shape_.rows,
                          .num_heads = heads.count,
                          .row_width = kColumns,
                          .row_stride_bytes = kColumns,
                          .head_stride_bytes = shape_.rows * kColumns};
    const TensorView rope = matrix(scratch_.rope_rows, kCode, shape_.rows, BranchShape::kRope);
    ProjectedKeys fp8 = keys(chunk, heads);
    fp8.projected = swizzle_column_map(codes, kFp8.block_keys,
                                       projects_codes() ? scratch_.projected : scratch_.codes);
    fp8.rope = swizzle_column_map(row_matrix_of(rope), kFp8.block_keys, rope.data);
    return fp8;
  }

  AttendOutput outputs(const Heads& heads) const {
    AttendOutput outputs = attend_output(args_.out, args_.lse, {});
    outputs.out += heads.first * outputs.head_bytes;
    if (outputs.lse != nullptr) outputs.lse += heads.first * outputs.lse_head_stride;
    return outputs;
  }

  // Every head has a K of its own: a tile's rows are tokens of one head.
  PrefillParams attention(std::int64_t chunk, const Heads& heads) const {
    const std::int64_t group = heads.first / shape_.group();
    const std::int64_t key_bytes = BranchShape::kProjected * BranchShape::kElementBytes;
    return {.q = query_map(heads),
            .row_offsets = row_offsets(),
            .cache_lengths = view_.cache_lengths,
            .spans = {.first = scratch_.spans.first + chunk * shape_.batch,
                      .end = scratch_.spans.end + chunk * shape_.batch},
            .batch = static_cast<int>(shape_.batch),
            .passed_tokens = static_cast<int>(args_.chunks.decode_tokens),
            .head_tiles = static_cast<int>(heads.count),
            .kv_head_tiles = 1,
            .section_keys = static_cast<int>(kSectionBytes / key_bytes),
            .mask = visible_,
            .intervals = token_intervals(args_.mask),
            .scores = score_rules(args_.scale, args_.softcap, args_.alibi_slopes, args_.sinks,
                                  heads.first),
            .outputs = outputs(heads),
            .next_tile = scratch_.spans.next_tiles + group * shape_.max_chunks + chunk,
            .chain = {.sums = scratch_.chain_sums,
                      .rows = scratch_.chain_rows,
                      .links = scratch_.spans.links + chunk}};
  }

  void attend(std::int64_t chunk, const Heads& heads) const {
    // One more for each sequence's last, partly filled tile.
    const std::int64_t tiles = (shape_.tokens / kConfig.rows() + shape_.batch) * heads.count;
    const std::int64_t blocks = std::min<std::int64_t>(tiles, num_sms(args_.q.device.index));
    const PrefillLaunch where{.blocks = static_cast<int>(blocks), .stream = stream_};
    const PrefillParams params = attention(chunk, heads);
    if (has_fp8_products()) {
      launch_fp8_attention<Fp8Attention<DType::bf16>>(params, fp8_keys(chunk, heads), where);
      return;
    }
    const auto start = args_.q.dtype == DType::bf16 ? launcher<DType::bf16>(is_modified())
                                                    : launcher<DType::f16>(is_modified());
    start(params, keys(chunk, heads), where);
  }

  const MlaPrefillArgs& args_;
  const Context& context_;
  cudaStream_t stream_;
  BranchShape shape_;
  VisibleRange visible_;
  KvLayerView view_;
  any::mla_prefill::ChunkTable chunks_;
  BranchScratch scratch_;
};

}  // namespace

std::int64_t branch_workspace_bytes(const BranchShape& shape) {
  Carver counter;
  static_cast<void>(carve_branch(counter, shape));
  return counter.bytes();
}

void run_branch(const MlaPrefillArgs& args, const BranchShape& shape, const VisibleRange& visible,
                const Context& context) {
  Branch(args, shape, visible, context).run();
}

}  // namespace quire::cuda::sm90::mla_prefill
