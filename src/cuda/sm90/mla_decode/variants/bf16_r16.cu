// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_decode/few_rows/launch_few_rows.cuh"

namespace quire::cuda::sm90::mla_decode {

template <>
void launch_mla_attend<MlaDecodeBf16R16>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_few_rows<MlaDecodeBf16R16>(params, stream);
}

}  // namespace quire::cuda::sm90::mla_decode
