// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/stationary/kernel.cuh"

namespace quire::cuda::sm90::mla_prefill {

template void launch_stationary<DType::bf16, DType::bf16>(const StationaryParams&, cudaStream_t);
template void launch_stationary<DType::bf16, DType::fp8_e4m3>(const StationaryParams&,
                                                              cudaStream_t);
template void launch_stationary<DType::f16, DType::f16>(const StationaryParams&, cudaStream_t);

}  // namespace quire::cuda::sm90::mla_prefill
