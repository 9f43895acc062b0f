// SPDX-License-Identifier: Apache-2.0
// mla_indexer on tensor cores: fp8 products, and an exact selection that never sees all scores at
// once. Starts one kernel or two on the context's stream, allocates nothing and never waits.
#pragma once

#include <string>

#include "core/kernel.h"
#include "quire/ops/mla_indexer.h"

namespace quire::cuda::sm90::mla_indexer {

std::string refuse_index(const MlaIndexerProblem& problem);
KernelPtr<MlaIndexerArgs> prepare_index(const MlaIndexerProblem& problem);

}  // namespace quire::cuda::sm90::mla_indexer
