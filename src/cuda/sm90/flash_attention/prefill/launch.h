// SPDX-License-Identifier: Apache-2.0
// flash_attention by tiles of query rows on sm_90a, as the ops layer sees it: no CUDA headers. For
// prefills and mixtures; it takes decodes too, though not as fast as a kernel made for them.
#pragma once

#include <string>

#include "core/kernel.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda::sm90::flash_attention {

// Empty, or why the tile kernels do not take the problem.
std::string refuse_tiles(const FlashAttentionProblem& problem);
// Choices: ("kernel", "bf16_d128"), ("blocks", "132"), and how K and V come to the tensor cores.
KernelPtr<FlashAttentionArgs> prepare_tiles(const FlashAttentionProblem& problem);

}  // namespace quire::cuda::sm90::flash_attention
