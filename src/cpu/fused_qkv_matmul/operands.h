// SPDX-License-Identifier: Apache-2.0
// From a projection's arguments to the plain views of cpu/fused_qkv_matmul/job.h.
#pragma once

#include "core/projection.h"
#include "cpu/fused_qkv_matmul/job.h"

namespace quire::cpu {

WeightView weight_view(const Weight& weight);
InputView input_view(const Projection& args);

// Whether the bf16 engine takes them: every product of x and the weight's bare numbers is exact in bf16 × bf16, and
// scales are the same for all columns of a group. A permutation scatters the block scales of x over the columns of W.
bool fit_bf16_engine(const InputView& x, const WeightView& weight);

}  // namespace quire::cpu
