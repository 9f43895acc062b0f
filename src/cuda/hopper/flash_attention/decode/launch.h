// SPDX-License-Identifier: Apache-2.0
// flash_attention of few new tokens per sequence on sm_90a, as the ops layer sees it: no CUDA headers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quire/ops/flash_attention.h"

namespace quire::cuda::hopper {

// Empty, or why the decode kernels do not take the problem.
std::string refuse_decode(const FlashAttentionProblem& problem);
// Bounded by the multiprocessors, not by the context; with batch_invariant by the batch.
std::int64_t decode_workspace_bytes(const FlashAttentionProblem& problem);
// ("kernel", "bf16_d128_r8"), ("tile_tokens", "2")
std::vector<std::pair<std::string, std::string>> decode_choices(
    const FlashAttentionProblem& problem);
void flash_attention_decode(const FlashAttentionArgs& args, const Context& context);

}  // namespace quire::cuda::hopper
