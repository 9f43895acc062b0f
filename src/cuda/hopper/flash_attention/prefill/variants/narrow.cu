// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/flash_attention/prefill/narrow/launch_flipping.cuh"
#include "cuda/hopper/flash_attention/prefill/narrow/launch_narrow.cuh"
#include "cuda/hopper/flash_attention/prefill/variants.h"

namespace quire::cuda::hopper {

template void launch_narrow<NarrowD128<DType::bf16, Scores::scaled>>(const PrefillParams&,
                                                                     const FlippedKeys&,
                                                                     const PrefillLaunch&);
template void launch_narrow<NarrowD192V128<DType::bf16, Scores::scaled>>(const PrefillParams&,
                                                                         const FlippedKeys&,
                                                                         const PrefillLaunch&);
template void launch_flipping<NarrowD192V128<DType::bf16, Scores::scaled>>(const PrefillParams&,
                                                                           const PagedKeys&,
                                                                           const PrefillLaunch&);

}  // namespace quire::cuda::hopper
