// SPDX-License-Identifier: Apache-2.0
// From the op's arguments to the plain views of cpu/fused_qkv_matmul/job.h.
#pragma once

#include "cpu/fused_qkv_matmul/job.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cpu {

WeightView weight_view(const Weight& weight);
InputView input_view(const FusedQkvArgs& args);

// Whether every product of x and the weight's bare numbers is exact in bf16 × bf16.
bool is_exact_in_bf16(DType x, const WeightView& weight);

}  // namespace quire::cpu
