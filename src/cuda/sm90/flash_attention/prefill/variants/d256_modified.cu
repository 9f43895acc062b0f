// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/flash_attention/prefill/kernel.cuh"

namespace quire::cuda::sm90::flash_attention {

template void launch_prefill<PrefillD256<DType::bf16, Scores::modified>>(const PrefillParams&,
                                                                         const PagedKeys&,
                                                                         const PrefillLaunch&);
template void launch_prefill<PrefillD256<DType::f16, Scores::modified>>(const PrefillParams&,
                                                                        const PagedKeys&,
                                                                        const PrefillLaunch&);

}  // namespace quire::cuda::sm90::flash_attention
