// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/flash_attention/prefill/expanded/launch_expanding.cuh"
#include "cuda/hopper/flash_attention/prefill/variants.h"

namespace quire::cuda::hopper {

template void launch_expanding<PrefillD128Expanding<DType::bf16, Scores::scaled>>(
    const PrefillParams&, const ExpandedKeys&, const PrefillLaunch&);

}  // namespace quire::cuda::hopper
