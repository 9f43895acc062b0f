// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/projected_source.cuh"

namespace quire::cuda::sm90::mla_prefill {

template void launch_projected<ProjectedAttention<DType::bf16, Scores::modified>>(
    const PrefillParams&, const ProjectedKeys&, const PrefillLaunch&);
template void launch_projected<ProjectedAttention<DType::f16, Scores::modified>>(
    const PrefillParams&, const ProjectedKeys&, const PrefillLaunch&);

}  // namespace quire::cuda::sm90::mla_prefill
