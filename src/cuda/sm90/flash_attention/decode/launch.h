// SPDX-License-Identifier: Apache-2.0
// flash_attention of few new tokens per sequence on sm_90a, as the ops layer sees it: no CUDA headers.
#pragma once

#include <string>

#include "core/kernel.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::sm90::flash_attention {

// Empty, or why the decode kernels do not take the problem.
std::string refuse_decode(const FlashAttentionProblem& problem);
// Its workspace is bounded by the multiprocessors, not by the context; with batch_invariant by the batch.
// Choices: ("kernel", "bf16_d128_r8"), ("tile_tokens", "2").
KernelPtr<FlashAttentionArgs> prepare_decode(const FlashAttentionProblem& problem);

}  // namespace quire::cuda::sm90::flash_attention
