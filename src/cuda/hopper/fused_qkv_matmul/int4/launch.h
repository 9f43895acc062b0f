// SPDX-License-Identifier: Apache-2.0
// fused_qkv_matmul with packed int4 weights on sm_90a, and their packing, as the ops layer sees it: no
// CUDA headers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "quire/ops/fused_qkv_matmul.h"

namespace quire::cuda::hopper {

// Empty, or why the int4 kernels do not take the problem; general/launch.h takes the others.
std::string refuse_int4(const FusedQkvProblem& problem);
// ("kernel", "int4_bf16_n64_t16"), ("blocks", "96")
std::vector<std::pair<std::string, std::string>> int4_choices(const FusedQkvProblem& problem);
std::int64_t int4_workspace_bytes(const FusedQkvProblem& problem);
void fused_qkv_int4(const FusedQkvArgs& args, const Context& context);

// Empty, or why no Hopper kernel reads the weight packed.
std::string refuse_packing(const Weight& weight);
// A plain weight as it will be once it is packed, but for its data and perm.
Weight packed_form(const Weight& weight);
// Size of the storage of such a form.
std::int64_t packed_bytes(const Weight& form, bool has_perm);
// Fills the storage on the context's stream and returns its view.
Weight pack_weight(const Weight& weight, std::byte* storage, const Context& context);

}  // namespace quire::cuda::hopper
