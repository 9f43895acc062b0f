// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/fused_qkv_matmul/int4/config.h"
#include "cuda/sm90/fused_qkv_matmul/int4/kernel.cuh"

namespace quire::cuda::sm90::fused_qkv_matmul {

template void launch_int4<Int4N64T16<DType::bf16>>(const Int4Params&, const Int4Grid&,
                                                   cudaStream_t);
template void launch_int4<Int4N64T16<DType::f16>>(const Int4Params&, const Int4Grid&, cudaStream_t);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
