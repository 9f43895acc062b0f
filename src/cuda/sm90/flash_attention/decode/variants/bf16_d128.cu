// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/decode/kernel.cuh"
#include "cuda/sm90/flash_attention/decode/variants.h"

namespace quire::cuda::sm90::flash_attention {

template void launch_decode<DecodeD128<DType::bf16, 16>>(const DecodeParams&, cudaStream_t);
template void launch_decode<DecodeD128<DType::bf16, 32>>(const DecodeParams&, cudaStream_t);
template void launch_decode<DecodeD128<DType::bf16, 8>>(const DecodeParams&, cudaStream_t);

}  // namespace quire::cuda::sm90::flash_attention
