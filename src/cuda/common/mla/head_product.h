// SPDX-License-Identifier: Apache-2.0
// Products with a matrix for every head: the absorbed projections of decode and the up-projection of prefill.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include "cuda/common/mla/finish_rows.h"
#include "cuda/common/paging/row_reader.h"
#include "quire/ops/mla_decode.h"

namespace quire::cuda {

// W [heads, outputs, columns], any strides; fp8: one f32 scale for 128 × 128 numbers.
struct HeadWeights {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t head_stride = 0;  // elements
  std::int64_t output_stride = 0;
  std::int64_t column_stride = 0;
  const float* scales = nullptr;  // null: none
  std::int64_t scale_head_stride = 0;
  std::int64_t scale_output_stride = 0;  // of a block
  std::int64_t scale_column_stride = 0;
  // Where the blocks of scales cut one matrix of all heads: its row of the first output, and the rows
  // of a head.
  std::int64_t scale_first_row = 0;
  std::int64_t scale_head_rows = 0;
};

// A weight [heads, outputs, columns] with scales of the same rank.
HeadWeights head_weights(const TensorView& weight, const std::optional<TensorView>& scale);

// What stands before a product with latent weights: rows as f32, quantized as fp8 weights ask for
// it, and the rope part of queries rotated.

// Columns [0, width) of plain rows [tokens, heads, ..] into f32 [tokens, heads, width], rounded to
// `fp8` in groups of 128 and scaled back where that is an fp8 type.
struct QuantizeRowsParams {
  PlainRows x;
  std::int64_t tokens = 0;
  std::int32_t heads = 0;
  std::int32_t width = 0;
  DType fp8 = DType::f32;
  float* y = nullptr;
  std::int64_t y_token_stride = 0;  // elements
  std::int64_t y_head_stride = 0;
};

void launch_quantize_rows(const QuantizeRowsParams& params, cudaStream_t stream);

// The last `rope` columns of q [tokens, heads, ..], rotated, to the end of rows of y.
struct RotateQueriesParams {
  PlainRows q;
  std::int64_t tokens = 0;
  std::int32_t heads = 0;
  std::int32_t rope = 0;
  LatentAngles angles;
  const std::uint32_t* row_offsets = nullptr;
  const std::uint32_t* cache_lengths = nullptr;
  std::int64_t batch = 0;
  std::byte* y = nullptr;  // may be q itself
  DType y_dtype = DType::f32;
  std::int32_t y_width = 0;
  std::int64_t y_token_bytes = 0;
  std::int64_t y_head_bytes = 0;
};

// The last `rope` columns of the call's q, to the end of rows of y [tokens, heads, ..].
template <typename Args>
RotateQueriesParams rotated_queries(const Args& args, std::int64_t rope, const TensorView& y) {
  const KvLayerView view = args.cache.key(args.layer);
  return {.q = plain_rows(args.q),
          .tokens = args.q.shape[0],
          .heads = static_cast<std::int32_t>(args.q.shape[1]),
          .rope = static_cast<std::int32_t>(rope),
          .angles = latent_angles(args.freqs_cis),
          .row_offsets = args.row_offsets.template as<const std::uint32_t>(),
          .cache_lengths = view.cache_lengths,
          .batch = view.batch,
          .y = y.as<std::byte>(),
          .y_dtype = y.dtype,
          .y_width = static_cast<std::int32_t>(y.shape[2]),
          .y_token_bytes = bytes_for(y.dtype, y.strides[0]),
          .y_head_bytes = bytes_for(y.dtype, y.strides[1])};
}

void launch_rotate_queries(const RotateQueriesParams& params, cudaStream_t stream);

// y(row, head) = x(row, head) · W(head)ᵀ for every head.
struct HeadProductParams {
  PlainRows x;  // [rows, heads, columns]; head_bytes 0: one x for all heads
  HeadWeights weights;
  std::int64_t rows = 0;
  // Rows that exist, on the device, -1 for none; null: all of them.
  const std::int32_t* live_rows = nullptr;
  std::int32_t heads = 0;
  std::int32_t outputs = 0;
  std::byte* y = nullptr;  // [rows, heads, outputs]
  DType y_dtype = DType::f32;
  std::int64_t y_row_bytes = 0;
  std::int64_t y_head_bytes = 0;
  // Of the tensor cores: the rope part of queries, rotated on the way by CTAs of its own; y null: there is none.
  RotateQueriesParams rope{};
  int block_tiles = 1;  // tiles of outputs that a block takes one after another; set by the launch
};

// x of mla_decode's tokens times one of its weights, to the first columns of y's rows.
HeadProductParams decode_product(const MlaDecodeArgs& args, const PlainRows& x,
                                 const TensorView& weight, const std::optional<TensorView>& scale,
                                 const TensorView& y);

// On fp32 multiply-adds.
void launch_head_product(const HeadProductParams& params, cudaStream_t stream);

// On the tensor cores, where x and y are bf16, x has a multiple of 128 columns, and weights are bf16, or e4m3 with scales:
// then x is rounded to e4m3 too, in groups of 128 columns. Rows are few: it costs what the weights' bytes cost.
void launch_head_matmul(const HeadProductParams& params, cudaStream_t stream);

}  // namespace quire::cuda
