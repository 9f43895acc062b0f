// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul and linear on the CPU: one driver, whose columns go to `out` and to the rows of a cache if there is one.
//
// The bf16 engine takes bf16 and fp8 inputs with weights whose numbers are exact in bf16 (bf16,
// fp8, 4-bit codes, GGUF blocks of 32 columns): products are exact, and scales multiply f32 sums. Everything else
// runs on the f32 engine with values converted to f32, also block scales of x under a permutation,
// where no two columns need share a scale. int8 activations have a kernel of their own, on integer
// dot products.
#pragma once

#include <string>

#include "core/projection.h"
#include "cpu/runtime/target.h"
#include "quire/context.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cpu {

// Empty, or why the target does not take the problem.
std::string refuse(const FusedQkvProblem& problem, Target target);

void project(const Projection& args, const Context& context, Target target);

}  // namespace quire::cpu
