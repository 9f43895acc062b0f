// SPDX-License-Identifier: Apache-2.0
// merge_states on every GPU: partial attentions joined. Starts kernels on the context's stream, allocates nothing
// and never waits.
#pragma once

#include <string>

#include "quire/ops/merge_states.h"

namespace quire::cuda::any::merge_states {

// Empty: any valid problem on a GPU of compute capability 8.0 or newer.
std::string refuse(const MergeStatesProblem& problem);
void merge_states(const MergeStatesArgs& args, const Context& context);

}  // namespace quire::cuda::any::merge_states
