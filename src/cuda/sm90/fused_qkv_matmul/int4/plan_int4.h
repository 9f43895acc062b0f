// SPDX-License-Identifier: Apache-2.0
// Which int4 kernel a problem gets: pure functions of sizes.
#pragma once

#include <string>

#include "cuda/sm90/fused_qkv_matmul/int4/config.h"
#include "cuda/sm90/fused_qkv_matmul/int4/variant_table.h"
#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct Int4Plan {
  const Int4Variant* variant = nullptr;
  Int4Grid grid{};
};

// Empty, or why the int4 kernels do not take the problem; any/ takes the others.
std::string refuse_int4_tiles(const FusedQkvProblem& problem);
// The variant whose busiest multiprocessor has the fewest steps to do.
Int4Plan plan_int4(const Int4Shape& shape, int num_sms);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
