// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch in kernels that run on every GPU.
#pragma once

#include <cuda_runtime.h>

namespace quire::cuda {

// The next kernel of the stream may start, if it was launched with overlaps_previous. Before sm_90 there is no such
// launch: the next kernel starts when this one has ended.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

}  // namespace quire::cuda
