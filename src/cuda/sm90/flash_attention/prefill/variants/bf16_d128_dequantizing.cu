// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/flash_attention/prefill/dequantized/dequantizing_kernel.cuh"

namespace quire::cuda::sm90::flash_attention {

template void launch_dequantizing<PrefillD128Dequantizing<DType::bf16, Scores::scaled>>(
    const PrefillParams&, const DequantizedKeys&, const PrefillLaunch&);

}  // namespace quire::cuda::sm90::flash_attention
