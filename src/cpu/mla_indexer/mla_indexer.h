// SPDX-License-Identifier: Apache-2.0
// mla_indexer on the CPU: every problem that is valid and on the host.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/mla_indexer.h"

namespace quire::cpu {

// Empty, or why the target does not take the problem.
std::string refuse(const MlaIndexerProblem& problem, Target target);

void mla_indexer(const MlaIndexerArgs& args, const Context& context, Target target);

}  // namespace quire::cpu
