// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_decode/projections.h"

#include <bit>
#include <numeric>

#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/mla/head_product.h"
#include "cuda/sm90/mla_decode/swap_ab/config.h"
#include "quire/tile_builders.h"

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

namespace {

// The first `bytes` bytes of the rows.
PageMatrix leading_bytes(const PagedOperand& kv, int bytes) {
  return {.dtype = DType::u8,
          .num_pages = kv.pages.num_pages(),
          .page_size = kv.pages.page_size(),
          .row_width = bytes,
          .page_stride_bytes = kv.page_stride_bytes,
          .row_stride_bytes = kv.token_stride_bytes};
}

// (byte of the swizzle column, row of the page, swizzle column, page); a swizzle column has 64 or 128 bytes, and one
// that the row does not fill is left out.
TensorMap swizzle_column_map(const LatentPages& pages, int swizzle_column_bytes, int rows,
                             int swizzle_columns) {
  const int whole_columns = pages.kv.row_bytes / swizzle_column_bytes;
  const FoldedTileRequest request{
      .swizzle = swizzle_column_bytes == 128 ? Swizzle::b128 : Swizzle::b64,
      .box_rows = rows,
      .fold_chunks = swizzle_columns,
      .heads = HeadAxis::absent,
      .l2_promotion = L2Promotion::b128};
  const PageMatrix matrix = leading_bytes(pages.kv, whole_columns * swizzle_column_bytes);
  return encode_tensor_map(make_folded_tile(matrix, request),
                           const_cast<std::byte*>(pages.kv.keys));
}

constexpr int kRowSwizzleColumn = 128;  // bytes: 64 columns of bf16

}  // namespace

void set_swizzle_column_maps(MlaDecodeParams& params) {
  constexpr int kRows = SwapAbConfig::kUnitKeys;
  params.latents = swizzle_column_map(params.pages, kRowSwizzleColumn, kRows,
                                      params.pages.kv.row_bytes / kRowSwizzleColumn);
  if (params.format.has_fp8_rope)
    params.tails = swizzle_column_map(params.pages, kRowSwizzleColumn / 2, kRows, 1);
}

// (8 bytes, row of the page, page). Bytes of the box behind a row's end are zeros: they space rows out.
void set_unit_maps(MlaDecodeParams& params) {
  constexpr int kElement = 8;
  const PagedOperand& kv = params.pages.kv;
  const TileRequest request{.swizzle = Swizzle::none,
                            .box_columns = SwapAbConfig::kFp8Pitch / kElement,
                            .box_rows = SwapAbConfig::kUnitKeys,
                            .heads = HeadAxis::absent,
                            .l2_promotion = L2Promotion::b128};
  const PageMatrix matrix =
      columns_as(leading_bytes(kv, kv.row_bytes), DType::i64, 0, kv.row_bytes / kElement);
  params.latents = encode_tensor_map(make_tile(matrix, request), const_cast<std::byte*>(kv.keys));
}

void set_row_maps(MlaDecodeParams& params) {
  params.pages.box_rows = std::gcd(params.pages.kv.pages.page_size(), LatentConfig::kKeys);
  params.pages.box_bits = std::countr_zero(static_cast<unsigned>(params.pages.box_rows));
  params.latents = swizzle_column_map(params.pages, kRowSwizzleColumn, params.pages.box_rows, 2);
  params.tails = swizzle_column_map(params.pages, kRowSwizzleColumn, params.pages.box_rows, 1);
}

}  // namespace quire::cuda::sm90::mla_decode
