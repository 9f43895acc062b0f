// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/params.h"

#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::sm90::mla_prefill {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 64;                   // of a CTA
constexpr int kColumns = 256;               // of K and V
constexpr int kVectors = kColumns / kVec8;  // of a row, a thread each

// Some rows of one head.
__global__ void __launch_bounds__(kThreads) fp8_rows(const __grid_constant__ Fp8RowsParams params) {
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
  const auto head = static_cast<std::int64_t>(blockIdx.y);
  const int end = min(max(*params.live_rows, 0), params.rows);
  const int last = min(end, (static_cast<int>(blockIdx.x) + 1) * kRows);
  const auto vector = static_cast<int>(threadIdx.x % kVectors);
#pragma unroll 4
  for (int row = static_cast<int>(blockIdx.x * kRows + threadIdx.x / kVectors); row < last;
       row += kThreads / kVectors) {
    float values[kVec8];
    load_vec8(params.projected +
                  ((std::int64_t{row} * params.heads + head) * kColumns + vector * kVec8) * 2,
              DType::bf16, values);
    *reinterpret_cast<uint2*>(params.codes + (head * params.rows + row) * kColumns +
                              vector * kVec8) = pack_fp8(values, __NV_E4M3);
  }
}

}  // namespace

void launch_fp8_rows(const Fp8RowsParams& params, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((params.rows + kRows - 1) / kRows);
  launch(fp8_rows,
         {.grid = dim3(blocks, static_cast<unsigned>(params.heads)),
          .block = dim3(kThreads),
          .overlaps_previous = true},
         stream, params);
}

}  // namespace quire::cuda::sm90::mla_prefill
