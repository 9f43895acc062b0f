// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/fp8/fp8_source.cuh"

namespace quire::cuda::sm90::mla_prefill {

template void launch_fp8_attention<Fp8Attention<DType::bf16>>(const PrefillParams&,
                                                              const ProjectedKeys&,
                                                              const PrefillLaunch&);

}  // namespace quire::cuda::sm90::mla_prefill
