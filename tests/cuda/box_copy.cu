// SPDX-License-Identifier: Apache-2.0
#include <cuda/ptx>

#include "box_copy.h"
#include "cuda/common/runtime/status.h"

namespace quire::cuda {
namespace {

namespace ptx = ::cuda::ptx;

struct Coordinate {
  std::int32_t at[5];
};

template <int kRank>
__device__ void start_copy(std::byte* shared, const TensorMap& map, const Coordinate& coordinate,
                           std::uint64_t* barrier) {
  std::int32_t at[kRank];
  for (int i = 0; i < kRank; ++i) at[i] = coordinate.at[i];
  ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, shared, &map, at, barrier);
}

__global__ void copy_kernel(const __grid_constant__ TensorMap map, int rank, Coordinate coordinate,
                            std::uint32_t bytes, std::byte* out) {
  extern __shared__ __align__(1024) std::byte shared[];  // swizzled boxes need 1024-byte alignment
  __shared__ std::uint64_t barrier;
  for (std::uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) shared[i] = std::byte{0xA5};
  if (threadIdx.x == 0) ptx::mbarrier_init(&barrier, 1);
  // TMA must see both the poison and the barrier before it writes.
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier,
                                   bytes);
    switch (rank) {
      case 2:
        start_copy<2>(shared, map, coordinate, &barrier);
        break;
      case 3:
        start_copy<3>(shared, map, coordinate, &barrier);
        break;
      case 4:
        start_copy<4>(shared, map, coordinate, &barrier);
        break;
      case 5:
        start_copy<5>(shared, map, coordinate, &barrier);
        break;
    }
  }
  while (!ptx::mbarrier_try_wait_parity(&barrier, 0)) {
  }
  for (std::uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = shared[i];
}

}  // namespace

std::vector<std::byte> copy_box(const TensorMap& map, int rank,
                                const std::array<std::int64_t, 5>& coordinate, std::int64_t bytes) {
  Coordinate narrow{};
  for (int i = 0; i < 5; ++i) narrow.at[i] = static_cast<std::int32_t>(coordinate[i]);
  std::byte* out = nullptr;
  check(cudaMalloc(&out, static_cast<std::size_t>(bytes)), "cudaMalloc");
  check(cudaFuncSetAttribute(copy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kBoxCopyMaxBytes)),
        "cudaFuncSetAttribute");
  copy_kernel<<<1, 128, static_cast<std::size_t>(bytes)>>>(map, rank, narrow,
                                                           static_cast<std::uint32_t>(bytes), out);
  check(cudaGetLastError(), "copy_kernel");
  std::vector<std::byte> host(static_cast<std::size_t>(bytes));
  check(cudaMemcpy(host.data(), out, host.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaFree(out), "cudaFree");
  return host;
}

}  // namespace quire::cuda
