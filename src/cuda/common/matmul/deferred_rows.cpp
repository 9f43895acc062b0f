// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/matmul/deferred_rows.h"

#include <limits>

#include "cuda/any/store/launch.h"

namespace quire::cuda {
namespace {

// The columns of K or V in the waiting rows, as [tokens, heads, width].
TensorView side_of_rows(const Projection& args, float* rows, KvSide side) {
  const PagedKVCache& cache = *args.cache;
  const std::int64_t width = cache.format().width();
  const std::int64_t kv_dim = cache.num_kv_heads() * width;
  TensorView x =
      TensorView::contiguous(rows + (side == KvSide::value ? kv_dim : 0), DType::f32,
                             {args.x.shape[0], cache.num_kv_heads(), width}, args.x.device);
  x.strides[0] = (cache.is_mla() ? 1 : 2) * kv_dim;
  return x;
}

}  // namespace

bool holds_plain_numbers(const RowFormat& format) {
  const RowPart& part = format.parts[0];
  return format.num_parts <= 1 && part.scale_source == ScaleSource::none && part.offset_bytes == 0;
}

bool holds_plain_floats(const RowFormat& format) {
  return holds_plain_numbers(format) && is_float(format.parts[0].dtype);
}

std::int64_t deferred_rows_bytes(const FusedQkvProblem& problem) {
  const std::int64_t sides = problem.cache.is_mla ? 1 : 2;
  return bytes_for(DType::f32, problem.ragged.tokens * sides * problem.cache.num_kv_heads *
                                   problem.cache.row_format.width());
}

// One page holds the rows of one sequence. Its id, and the length before it, are the 0 that row_offsets begins
// with.
QkvOutputs deferred_outputs(QkvOutputs outputs, float* rows) {
  const std::int64_t row_bytes = bytes_for(DType::f32, outputs.columns - outputs.q_dim);
  outputs.keys = {.data = reinterpret_cast<std::byte*>(rows),
                  .num_pages = 1,
                  .page_size = std::numeric_limits<std::int32_t>::max(),
                  .num_heads = 1,
                  .token_stride_bytes = row_bytes,
                  .page_table = outputs.row_offsets,
                  .max_pages = 1,
                  .cache_lengths = outputs.row_offsets,
                  .batch = 1};
  outputs.head_dim = outputs.kv_dim;
  outputs.kv_dtype = DType::f32;
  outputs.heads_are_dense = true;
  outputs.value_offset_bytes = bytes_for(DType::f32, outputs.kv_dim);
  outputs.batch = 1;
  return outputs;
}

void store_deferred_rows(const Projection& args, const Context& context, float* rows) {
  const auto store_side = [&](KvSide side) {
    any::store::store({.x = side_of_rows(args, rows, side),
                       .row_offsets = *args.row_offsets,
                       .cache = *args.cache,
                       .layer = args.layer,
                       .side = side},
                      context);
  };
  store_side(KvSide::key);
  if (!args.cache->is_mla()) store_side(KvSide::value);
}

}  // namespace quire::cuda
