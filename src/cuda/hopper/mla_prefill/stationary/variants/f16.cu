// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_prefill/stationary/kernel.cuh"

namespace quire::cuda::hopper {

template void launch_stationary<DType::f16, DType::f16>(const StationaryParams&, cudaStream_t);

}  // namespace quire::cuda::hopper
