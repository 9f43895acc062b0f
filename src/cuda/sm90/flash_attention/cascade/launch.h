// SPDX-License-Identifier: Apache-2.0
// flash_attention where all sequences begin with the same pages, as the ops layer sees it: no CUDA
// headers. The shared keys are read once for the queries of the whole batch, as one sequence of all
// tokens, the others as ever, and the two states of each row are merged.
//
//   q of all tokens ─ prefill over the shared pages ─► state, LSE ┐
//   q ─ decode or prefill over each sequence's own pages ─► state, LSE ┴ merge ─► out, LSE
#pragma once

#include <string>

#include "core/kernel.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::sm90::flash_attention {

// Empty, or why not: the other candidates take the problem and need not know of the prefix.
std::string refuse_cascade(const FlashAttentionProblem& problem);
// Choices: ("prefix", "hopper/flash_attention"), ("rest", "hopper/decode/flash_attention").
KernelPtr<FlashAttentionArgs> prepare_cascade(const FlashAttentionProblem& problem);

}  // namespace quire::cuda::sm90::flash_attention
