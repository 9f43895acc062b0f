// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/sparse_mla/fp8/kernel.cuh"
#include "cuda/sm90/sparse_mla/fp8/launch_fp8.h"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant>
void launch_sparse_fp8(const SparseParams& params, int blocks, cudaStream_t stream) {
  launch(sparse_fp8_kernel<Variant>,
         {.grid = dim3(static_cast<unsigned>(blocks)),
          .block = dim3(Fp8Config::kThreads),
          .shared_bytes = sizeof(Fp8Shared<Variant>)},
         stream, params);
}

}  // namespace quire::cuda::sm90::sparse_mla
