// SPDX-License-Identifier: Apache-2.0
// The attention of a group of heads over one chunk.
#include <algorithm>

#include "cuda/common/runtime/device_facts.h"
#include "cuda/sm90/mla_prefill/branch.h"
#include "cuda/sm90/mla_prefill/variants.h"
#include "quire/tile_builders.h"

namespace quire::cuda::sm90::mla_prefill {
namespace {

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

}  // namespace

TensorMap Branch::query_map(const Heads& heads) const {
  RowMatrix rows = row_matrix_of(args_.q);
  rows.num_heads = heads.count;
  rows.base_offset_bytes = heads.first * rows.head_stride_bytes;
  return swizzle_column_map(rows, has_fp8_products() ? kFp8.part_rows() : kConfig.part_rows(),
                            args_.q.data);
}

ProjectedKeys Branch::keys(std::int64_t chunk, const Heads& heads) const {
  const TensorView projected = this->projected(heads);
  const TensorView rope =
      matrix(scratch_.rope_rows, args_.q.dtype, shape_.rows, BranchShape::kRope);
  return {
      .projected = swizzle_column_map(row_matrix_of(projected), kConfig.block_keys, projected.data),
      .rope = swizzle_column_map(row_matrix_of(rope), kConfig.block_keys, rope.data),
      .buffer_rows = scratch_.spans.buffer_rows + chunk * shape_.batch,
      .pages = PageTable::of_rows(view_)};
}

// As keys(), of e4m3: the rope's boxes are twice as wide as it is, zeros behind it.
ProjectedKeys Branch::fp8_keys(std::int64_t chunk, const Heads& heads) const {
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

PrefillOutputs Branch::outputs(const Heads& heads) const {
  const TensorView& out = args_.out;
  PrefillOutputs outputs{.token_stride_bytes = bytes_for(out.dtype, out.strides[0]),
                         .head_stride_bytes = bytes_for(out.dtype, out.strides[1])};
  outputs.out = out.as<std::byte>() + heads.first * outputs.head_stride_bytes;
  if (args_.lse.has_value()) {
    outputs.lse = args_.lse->as<float>() + heads.first * args_.lse->strides[1];
    outputs.lse_token_stride = args_.lse->strides[0];
    outputs.lse_head_stride = args_.lse->strides[1];
  }
  return outputs;
}

ScoreRules Branch::scores(const Heads& heads) const {
  ScoreRules rules{.scale = static_cast<float>(args_.scale),
                   .softcap = static_cast<float>(args_.softcap)};
  if (args_.alibi_slopes.has_value()) {
    rules.alibi_stride = args_.alibi_slopes->strides[0];
    rules.alibi_slopes = args_.alibi_slopes->as<const float>() + heads.first * rules.alibi_stride;
  }
  if (args_.sinks.has_value()) {
    rules.sinks_stride = args_.sinks->strides[0];
    rules.sinks = args_.sinks->as<const float>() + heads.first * rules.sinks_stride;
  }
  return rules;
}

// Every head has a K of its own: a tile's rows are tokens of one head.
PrefillParams Branch::attention(std::int64_t chunk, const Heads& heads) const {
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
          .scores = scores(heads),
          .outputs = outputs(heads),
          .next_tile = scratch_.spans.next_tiles + group * shape_.max_chunks + chunk,
          .chain = {.sums = scratch_.chain_sums,
                    .rows = scratch_.chain_rows,
                    .links = scratch_.spans.links + chunk}};
}

void Branch::attend(std::int64_t chunk, const Heads& heads) const {
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

}  // namespace quire::cuda::sm90::mla_prefill
