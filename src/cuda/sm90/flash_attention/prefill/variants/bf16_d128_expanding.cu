// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/flash_attention/prefill/expanded/launch_expanding.cuh"

namespace quire::cuda::sm90::flash_attention {

template void launch_expanding<PrefillD128Expanding<DType::bf16, Scores::scaled>>(
    const PrefillParams&, const ExpandedKeys&, const PrefillLaunch&);

}  // namespace quire::cuda::sm90::flash_attention
