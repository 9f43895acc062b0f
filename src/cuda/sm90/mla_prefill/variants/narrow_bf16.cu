// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/narrow/launch_narrow.cuh"

namespace quire::cuda::sm90::mla_prefill {

template void launch_narrow_attention<NarrowAttention<DType::bf16>>(const PrefillParams&,
                                                                    const ProjectedKeys&,
                                                                    const PrefillLaunch&);

}  // namespace quire::cuda::sm90::mla_prefill
