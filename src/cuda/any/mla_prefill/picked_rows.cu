// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/mla_prefill/picked_rows.h"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::mla_prefill {
namespace {

constexpr int kThreads = 256;

__device__ std::uint32_t picked_tokens(const PickedBatch& batch, std::int64_t sequence) {
  if (sequence >= batch.batch) return 0;
  const std::uint32_t tokens = batch.row_offsets[sequence + 1] - batch.row_offsets[sequence];
  return tokens <= batch.max_tokens ? tokens : 0;
}

// One warp: a running sum over the sequences, 32 at a time.
__global__ void __launch_bounds__(32) pick_offsets(const __grid_constant__ PickedBatch batch) {
  const int lane = static_cast<int>(threadIdx.x);
  std::uint32_t before = 0;
  for (std::int64_t first = 0; first < batch.batch; first += 32) {
    const std::uint32_t sum = sum_up_to_lane(picked_tokens(batch, first + lane), lane);
    if (first + lane < batch.batch) batch.picked_offsets[first + lane + 1] = before + sum;
    before += __shfl_sync(~0u, sum, 31);
  }
  if (lane == 0) batch.picked_offsets[0] = 0;
}

// Where row `picked` of the dense array stands in the batch; -1: it is none's.
__device__ std::int64_t token_of(const PickedBatch& batch, std::int64_t picked) {
  if (picked >= batch.picked_offsets[batch.batch]) return -1;
  const int sequence = sequence_of(batch.picked_offsets, static_cast<int>(batch.batch),
                                   static_cast<std::uint32_t>(picked));
  return batch.row_offsets[sequence] + (picked - batch.picked_offsets[sequence]);
}

enum class Direction : std::uint8_t { pick, put_back };

// A block per picked token.
template <typename Vector, Direction kDirection>
__global__ void __launch_bounds__(kThreads)
    copy_rows(const __grid_constant__ CopyPickedParams params) {
  const std::int64_t token = token_of(params.batch, blockIdx.x);
  if (token < 0) return;
  const std::int64_t vectors = params.row_bytes / std::int64_t{sizeof(Vector)};
  std::byte* ragged = params.ragged.data + token * params.ragged.token_bytes;
  std::byte* dense = params.dense.data + blockIdx.x * params.dense.token_bytes;
  for (std::int64_t i = threadIdx.x; i < params.heads * vectors; i += kThreads) {
    const std::int64_t head = i / vectors;
    const std::int64_t column = i % vectors;
    auto* in_batch = reinterpret_cast<Vector*>(ragged + head * params.ragged.head_bytes) + column;
    auto* in_dense = reinterpret_cast<Vector*>(dense + head * params.dense.head_bytes) + column;
    if constexpr (kDirection == Direction::pick) {
      *in_dense = *in_batch;
    } else {
      *in_batch = *in_dense;
    }
  }
}

template <Direction kDirection> auto kernel_of(int vector_bytes) {
  if (vector_bytes == 16) return copy_rows<uint4, kDirection>;
  if (vector_bytes == 4) return copy_rows<std::uint32_t, kDirection>;
  return vector_bytes == 2 ? copy_rows<std::uint16_t, kDirection>
                           : copy_rows<std::uint8_t, kDirection>;
}

template <Direction kDirection>
void launch_copy(const CopyPickedParams& params, cudaStream_t stream) {
  launch(kernel_of<kDirection>(params.vector_bytes),
         {.grid = dim3(num_blocks(params.batch.rows, 1)), .block = dim3(kThreads)}, stream, params);
}

}  // namespace

void launch_pick_offsets(const PickedBatch& batch, cudaStream_t stream) {
  launch(pick_offsets, {.grid = dim3(1), .block = dim3(32)}, stream, batch);
}

void launch_pick_rows(const CopyPickedParams& params, cudaStream_t stream) {
  launch_copy<Direction::pick>(params, stream);
}

void launch_put_back_rows(const CopyPickedParams& params, cudaStream_t stream) {
  launch_copy<Direction::put_back>(params, stream);
}

}  // namespace quire::cuda::any::mla_prefill
