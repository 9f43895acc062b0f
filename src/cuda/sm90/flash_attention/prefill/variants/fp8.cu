// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/flash_attention/prefill/fp8/launch_fp8.cuh"

namespace quire::cuda::sm90::flash_attention {

template void launch_fp8<Fp8D128<DType::bf16, Scores::scaled>>(const PrefillParams&,
                                                               const TransposedKeys&,
                                                               const PrefillLaunch&);
template void launch_fp8<Fp8D192V128<DType::bf16, Scores::scaled>>(const PrefillParams&,
                                                                   const TransposedKeys&,
                                                                   const PrefillLaunch&);
template void launch_transposing<Fp8D192V128<DType::bf16, Scores::scaled>>(const PrefillParams&,
                                                                           const PagedKeys&,
                                                                           const PrefillLaunch&);

}  // namespace quire::cuda::sm90::flash_attention
