// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/flash_attention/general/launch.h"

namespace quire::cuda::hopper {

std::string refuse_general(const FlashAttentionProblem& problem) {
  return refuse_absent(problem.device);
}

void flash_attention_general(const FlashAttentionArgs&, const Context&) {
  throw_absent("flash_attention");
}

}  // namespace quire::cuda::hopper
