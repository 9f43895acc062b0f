// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul on sm_90a, as the ops layer sees it: no CUDA headers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::hopper {

// Empty, or why the tile kernels do not take the problem; general/launch.h takes the others.
std::string refuse(const FusedQkvProblem& problem);
// ("kernel", "bf16_n256"), ("blocks", "132")
std::vector<std::pair<std::string, std::string>> choices(const FusedQkvProblem& problem);
// K and V rows that are not stored as they are computed wait in fp32.
std::int64_t tile_workspace_bytes(const FusedQkvProblem& problem);
void fused_qkv_matmul(const FusedQkvArgs& args, const Context& context);

}  // namespace quire::cuda::hopper
