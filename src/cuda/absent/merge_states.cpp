// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/merge_states/launch.h"

namespace quire::cuda::hopper {

std::string refuse(const MergeStatesProblem& problem) {
  return refuse_absent(problem.device);
}

void merge_states(const MergeStatesArgs&, const Context&) {
  throw_absent("merge_states");
}

}  // namespace quire::cuda::hopper
