// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/flash_attention/prefill/expanded/expanded_keys.h"
#include "cuda/sm90/flash_attention/prefill/workspace.h"

namespace quire::cuda::sm90::flash_attention {

// What the kernel of PrefillPath::expanding receives of a cache.
ExpandedKeys expanded_keys(const FlashAttentionArgs& args, const FlashAttentionProblem& problem,
                           const PrefillPlan& plan, const PrefillWorkspace& space);

}  // namespace quire::cuda::sm90::flash_attention
