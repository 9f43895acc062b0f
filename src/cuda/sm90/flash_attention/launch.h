// SPDX-License-Identifier: Apache-2.0
// flash_attention on sm_90a, as the ops layer sees it: no CUDA headers.
#pragma once

#include <string>

#include "core/kernel.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::sm90::flash_attention {

// flash_attention where all sequences begin with the same pages, as the ops layer sees it: no CUDA
// headers. The shared keys are read once for the queries of the whole batch, as one sequence of all
// tokens, the others as ever, and the two states of each row are merged.
//
//   q of all tokens ─ prefill over the shared pages ─► state, LSE ┐
//   q ─ decode or prefill over each sequence's own pages ─► state, LSE ┴ merge ─► out, LSE

// Empty, or why not: the other candidates take the problem and need not know of the prefix.
std::string refuse_cascade(const FlashAttentionProblem& problem);
// Choices: ("prefix", "cuda/sm90/flash_attention"), ("rest", "cuda/sm90/decode/flash_attention").
KernelPtr<FlashAttentionArgs> prepare_cascade(const FlashAttentionProblem& problem);

// flash_attention of few new tokens per sequence on sm_90a, as the ops layer sees it: no CUDA headers.

// Empty, or why the decode kernels do not take the problem.
std::string refuse_decode(const FlashAttentionProblem& problem);
// Its workspace is bounded by the multiprocessors, not by the context; with batch_invariant by the batch.
// Choices: ("kernel", "bf16_d128_r8"), ("tile_tokens", "2").
KernelPtr<FlashAttentionArgs> prepare_decode(const FlashAttentionProblem& problem);

// flash_attention by tiles of query rows on sm_90a, as the ops layer sees it: no CUDA headers. For
// prefills and mixtures; it takes decodes too, though not as fast as a kernel made for them.

// Empty, or why the tile kernels do not take the problem.
std::string refuse_tiles(const FlashAttentionProblem& problem);
// Choices: ("kernel", "bf16_d128"), ("blocks", "132"), and how K and V come to the tensor cores.
KernelPtr<FlashAttentionArgs> prepare_tiles(const FlashAttentionProblem& problem);

}  // namespace quire::cuda::sm90::flash_attention
