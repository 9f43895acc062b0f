// SPDX-License-Identifier: Apache-2.0
// flash_attention by tiles of query rows on sm_90a, as the ops layer sees it: no CUDA headers. For
// prefills and mixtures; it takes decodes too, though not as fast as a kernel made for them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quire/ops/flash_attention.h"

namespace quire::cuda::hopper {

// Empty, or why the tile kernels do not take the problem; general/launch.h takes the others.
std::string refuse_tiles(const FlashAttentionProblem& problem);
std::int64_t prefill_workspace_bytes(const FlashAttentionProblem& problem);
// ("kernel", "bf16_d128"), ("blocks", "132")
std::vector<std::pair<std::string, std::string>> prefill_choices(
    const FlashAttentionProblem& problem);
void flash_attention_prefill(const FlashAttentionArgs& args, const Context& context);

}  // namespace quire::cuda::hopper
