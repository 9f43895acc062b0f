// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/branch.h"

#include <algorithm>

#include "cuda/common/mla/finish_plain.h"
#include "cuda/sm90/mla_prefill/fp8/fp8_rows.h"

namespace quire::cuda::sm90::mla_prefill {

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

Branch::Branch(const MlaPrefillArgs& args, const BranchShape& shape, const VisibleRange& visible,
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

void Branch::run() const {
  if (!finishes_rows()) {
    finish_latent_rows(new_latent_rows(args_), scratch_.new_rows, context_);
  }
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

void Branch::fp8_rows(std::int64_t chunk, const Heads& heads) const {
  launch_fp8_rows({.projected = scratch_.projected,
                   .live_rows = chunks_.buffer_lengths + chunk * chunks_.lengths_stride,
                   .rows = static_cast<int>(shape_.rows),
                   .heads = static_cast<int>(heads.count),
                   .codes = scratch_.codes},
                  stream_);
}

TensorView Branch::matrix(std::byte* data, DType dtype, std::int64_t rows,
                          std::int64_t columns) const {
  return TensorView::contiguous(data, dtype, {rows, columns}, args_.q.device);
}

TensorView Branch::projected(const Heads& heads) const {
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
ProjectionParams Branch::projection(std::int64_t chunk, const Heads& heads) const {
  constexpr std::int64_t kColumns = BranchShape::kProjected;
  const DType x_dtype = shape_.is_fp8 ? args_.kv_b_proj.dtype : args_.q.dtype;
  TensorView weight = args_.kv_b_proj;
  weight.shape[0] = heads.count * kColumns;
  weight.data =
      weight.as<std::byte>() + bytes_for(weight.dtype, heads.first * kColumns * weight.strides[0]);
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
    params.weight_scales = scale.as<const float>() +
                           heads.first * (kColumns / BranchShape::kScaleColumns) * scale.strides[0];
    params.weight_scale_strides[0] = scale.strides[0];
    params.weight_scale_strides[1] = scale.strides[1];
  }
  return params;
}

}  // namespace quire::cuda::sm90::mla_prefill
