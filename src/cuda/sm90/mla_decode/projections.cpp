// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_decode/projections.h"

#include "cuda/common/mla/finish_plain.h"
#include "cuda/common/mla/head_matmul.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

PlainRows columns_of(const TensorView& tensor, std::int64_t width) {
  PlainRows rows = plain_rows(tensor);
  rows.width = static_cast<std::int32_t>(width);
  return rows;
}

HeadMatmulParams matmul_of(const MlaDecodeArgs& args, const PlainRows& x, const TensorView& weight,
                           const std::optional<TensorView>& scale, const TensorView& y) {
  return {.x = x,
          .weights = head_weights(weight, scale),
          .rows = args.q.shape[0],
          .live_rows = args.row_offsets.as<const std::int32_t>() + args.cache.batch(),
          .heads = static_cast<std::int32_t>(args.q.shape[1]),
          .columns = x.width,
          .outputs = static_cast<std::int32_t>(weight.shape[1]),
          .y = static_cast<std::byte*>(y.data),
          .y_row_bytes = bytes_for(y.dtype, y.strides[0]),
          .y_head_bytes = bytes_for(y.dtype, y.strides[1]),
          .rope = {}};
}

RotateQueriesParams rope_of(const MlaDecodeArgs& args, const TensorView& y) {
  const KvLayerView view = args.cache.key(args.layer);
  return {.q = plain_rows(args.q),
          .tokens = args.q.shape[0],
          .heads = static_cast<std::int32_t>(args.q.shape[1]),
          .rope = static_cast<std::int32_t>(y.shape[2] - args.w_uk->shape[1]),
          .angles = latent_angles(args.freqs_cis),
          .row_offsets = args.row_offsets.as<const std::uint32_t>(),
          .cache_lengths = view.cache_lengths,
          .batch = view.batch,
          .y = static_cast<std::byte*>(y.data),
          .y_dtype = y.dtype,
          .y_width = static_cast<std::int32_t>(y.shape[2]),
          .y_token_bytes = bytes_for(y.dtype, y.strides[0]),
          .y_head_bytes = bytes_for(y.dtype, y.strides[1])};
}

}  // namespace

ProjectionScratch carve_projections(Carver& carver, const MlaDecodeProblem& problem) {
  const std::int64_t width = problem.latent_dim + problem.rope_dim;
  const std::int64_t rows = problem.nope_dim > 0 ? problem.ragged.tokens * problem.heads : 0;
  ProjectionScratch scratch;
  scratch.rows = carver.take<float>(problem.finishes_rows ? problem.ragged.tokens * width : 0);
  scratch.q = carver.take<std::byte>(bytes_for(DType::bf16, rows * width));
  scratch.latent = carver.take<std::byte>(bytes_for(DType::bf16, rows * problem.latent_dim));
  return scratch;
}

MlaDecodeArgs absorb_queries(const MlaDecodeArgs& args, const ProjectionScratch& scratch,
                             const Context& context) {
  finish_latent_rows(new_latent_rows(args), scratch.rows, context);
  if (!args.w_uk.has_value()) return args;
  const std::int64_t tokens = args.q.shape[0];
  const std::int64_t heads = args.q.shape[1];
  MlaDecodeArgs absorbed = args;
  absorbed.q = TensorView::contiguous(scratch.q, DType::bf16,
                                      {tokens, heads, args.cache.head_dim()}, args.q.device);
  absorbed.out = TensorView::contiguous(scratch.latent, DType::bf16,
                                        {tokens, heads, args.w_uk->shape[1]}, args.q.device);
  HeadMatmulParams matmul = matmul_of(args, columns_of(args.q, args.w_uk->shape[2]), *args.w_uk,
                                      args.w_uk_scale, absorbed.q);
  matmul.rope = rope_of(args, absorbed.q);
  launch_head_matmul(matmul, static_cast<cudaStream_t>(context.stream));
  return absorbed;
}

void project_values(const MlaDecodeArgs& args, const MlaDecodeArgs& absorbed,
                    const Context& context) {
  if (!args.w_uv.has_value()) return;
  launch_head_matmul(
      matmul_of(args, plain_rows(absorbed.out), *args.w_uv, args.w_uv_scale, args.out),
      static_cast<cudaStream_t>(context.stream));
}

}  // namespace quire::cuda::sm90::mla_decode
