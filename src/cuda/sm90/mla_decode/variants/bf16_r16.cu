// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_decode/swap_ab/kernel.cuh"

namespace quire::cuda::sm90::mla_decode {

template <>
void launch_mla_attend<MlaDecodeBf16R16>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_swap_ab<MlaDecodeBf16R16>(params, stream);
}

}  // namespace quire::cuda::sm90::mla_decode
