// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/rope/launch.h"

namespace quire::cuda::hopper {

std::string refuse(const RopeProblem& problem) {
  return refuse_absent(problem.device);
}

void rope(const RopeArgs&, const Context&) {
  throw_absent("rope");
}

}  // namespace quire::cuda::hopper
