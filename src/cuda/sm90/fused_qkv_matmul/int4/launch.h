// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul and linear with packed int4 weights on sm_90a. No CUDA headers.
#pragma once

#include <string>

#include "core/kernel.h"
#include "core/projection.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

// Empty, or why the int4 kernels do not take the problem; any/fused_qkv_matmul/launch.h takes the others.
std::string refuse_int4(const FusedQkvProblem& problem);
// Choices: ("kernel", "int4_bf16_n64_t16"), ("blocks", "96").
KernelPtr<Projection> prepare_int4(const FusedQkvProblem& problem);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
