// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_decode/launch_attend.cuh"
#include "cuda/hopper/mla_decode/variants.h"

namespace quire::cuda::hopper {

template void launch_mla_attend<MlaDecodeFp8R64>(const MlaDecodeParams&, cudaStream_t);

}  // namespace quire::cuda::hopper
