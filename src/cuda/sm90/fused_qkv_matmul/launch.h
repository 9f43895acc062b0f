// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul and linear on sm_90a, as the ops layer sees it: no CUDA headers.
#pragma once

#include <string>

#include "core/kernel.h"
#include "core/projection.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

// Empty, or why the tile kernels do not take the problem; any/fused_qkv_matmul/launch.h takes the others.
std::string refuse(const FusedQkvProblem& problem);
// Choices: ("kernel", "bf16_n256"), ("blocks", "132").
KernelPtr<Projection> prepare_tiles(const FusedQkvProblem& problem);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
