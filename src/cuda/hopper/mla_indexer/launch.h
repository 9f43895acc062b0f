// SPDX-License-Identifier: Apache-2.0
// mla_indexer on tensor cores: fp8 products, and an exact selection that never sees all scores at
// once. Starts one kernel or two on the context's stream, allocates nothing and never waits.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quire/ops/mla_indexer.h"

namespace quire::cuda::hopper {

std::string refuse_index(const MlaIndexerProblem& problem);
// What thread blocks leave of rows that they share: bounded by the GPU, not by tokens or keys.
std::int64_t index_workspace_bytes(const MlaIndexerProblem& problem);
std::vector<std::pair<std::string, std::string>> index_choices(const MlaIndexerProblem& problem);
void mla_indexer(const MlaIndexerArgs& args, const Context& context);

}  // namespace quire::cuda::hopper
