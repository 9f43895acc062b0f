// SPDX-License-Identifier: Apache-2.0
// sparse_mla on tensor cores: rows of 512 + 64 columns in bf16 or e4m3, gathered from their pages.
// Starts kernels on the context's stream, allocates nothing and never waits.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "quire/ops/sparse_mla.h"

namespace quire::cuda::hopper {

std::string refuse_sparse(const SparseMlaProblem& problem);
std::int64_t sparse_workspace_bytes(const SparseMlaProblem& problem);
std::vector<std::pair<std::string, std::string>> sparse_choices(const SparseMlaProblem& problem);
void sparse_mla_tiles(const SparseMlaArgs& args, const Context& context);

}  // namespace quire::cuda::hopper
