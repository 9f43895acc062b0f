// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/flash_attention/prefill/dequantized/dequantized_keys.h"
#include "cuda/sm90/flash_attention/prefill/workspace.h"

namespace quire::cuda::sm90::flash_attention {

// What the kernel of PrefillPath::dequantizing receives of a cache.
DequantizedKeys dequantized_keys(const FlashAttentionArgs& args,
                                 const FlashAttentionProblem& problem, const PrefillPlan& plan,
                                 const PrefillWorkspace& space);

}  // namespace quire::cuda::sm90::flash_attention
