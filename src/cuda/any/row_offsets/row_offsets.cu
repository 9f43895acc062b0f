// SPDX-License-Identifier: Apache-2.0
// One block scans the batch, kThreads sequences at a time: a batch is thousands at most.
#include "cuda/any/companions.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::row_offsets {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarp = 32;

__global__ void __launch_bounds__(kThreads)
    scan_lengths(const std::uint32_t* row_offsets, const std::uint32_t* cache_lengths,
                 std::uint32_t* out, std::int64_t batch) {
  __shared__ std::uint32_t warp_sums[kThreads / kWarp];
  std::uint32_t before = 0;  // keys of the sequences of earlier rounds
  if (threadIdx.x == 0) out[0] = 0;
  for (std::int64_t first = 0; first < batch; first += kThreads) {
    const std::int64_t sequence = first + threadIdx.x;
    std::uint32_t keys = 0;
    if (sequence < batch) {
      keys = cache_lengths[sequence] + row_offsets[sequence + 1] - row_offsets[sequence];
    }
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    const int warp = threadIdx.x / kWarp;
    const std::uint32_t in_warp = sum_up_to_lane(keys, lane);
    if (lane == kWarp - 1) warp_sums[warp] = in_warp;
    __syncthreads();
    if (warp == 0) warp_sums[threadIdx.x] = sum_up_to_lane(warp_sums[threadIdx.x], lane);
    __syncthreads();
    const std::uint32_t in_block = in_warp + (warp == 0 ? 0 : warp_sums[warp - 1]);
    if (sequence < batch) out[sequence + 1] = before + in_block;
    before += warp_sums[kThreads / kWarp - 1];
    __syncthreads();  // the sums are read before the next round writes them
  }
}

}  // namespace

void row_offsets(const RowOffsetsArgs& args, const Context& context) {
  const DeviceScope scope(args.out.device);
  launch(scan_lengths, {.grid = dim3(1), .block = dim3(kThreads)},
         static_cast<cudaStream_t>(context.stream), args.row_offsets.as<const std::uint32_t>(),
         args.cache_lengths.as<const std::uint32_t>(), args.out.as<std::uint32_t>(),
         args.cache_lengths.shape[0]);
}

}  // namespace quire::cuda::any::row_offsets
