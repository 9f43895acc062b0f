// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/flash_attention/prefill/narrow/launch_flipping.cuh"
#include "cuda/sm90/flash_attention/prefill/narrow/launch_narrow.cuh"

namespace quire::cuda::sm90::flash_attention {

template void launch_narrow<NarrowD128<DType::bf16, Scores::scaled>>(const PrefillParams&,
                                                                     const FlippedKeys&,
                                                                     const PrefillLaunch&);
template void launch_narrow<NarrowD192V128<DType::bf16, Scores::scaled>>(const PrefillParams&,
                                                                         const FlippedKeys&,
                                                                         const PrefillLaunch&);
template void launch_flipping<NarrowD192V128<DType::bf16, Scores::scaled>>(const PrefillParams&,
                                                                           const PagedKeys&,
                                                                           const PrefillLaunch&);

}  // namespace quire::cuda::sm90::flash_attention
