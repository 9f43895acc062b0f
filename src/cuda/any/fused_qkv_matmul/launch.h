// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul and linear for every valid problem on a GPU: any format, stride and alignment, on fp32
// multiply-adds. What the fast kernels refuse comes here. Starts kernels on the context's stream,
// allocates nothing and never waits.
#pragma once

#include <cstdint>
#include <string>

#include "core/kernel.h"
#include "core/projection.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::any::fused_qkv_matmul {

// Empty, or why not: tensors elsewhere, or a weight packed for another family of kernels.
std::string refuse_general(const FusedQkvProblem& problem);
// Rows that are quantized, or of several parts, wait in fp32 for the kernel that encodes whole rows;
// x rounded to int8 stands before them.
KernelPtr<Projection> prepare_general(const FusedQkvProblem& problem);

}  // namespace quire::cuda::any::fused_qkv_matmul
