// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/rms_norm/launch.h"

namespace quire::cuda::hopper {

std::string refuse(const RmsNormProblem& problem) {
  return refuse_absent(problem.device);
}

void rms_norm(const RmsNormArgs&, const Context&) {
  throw_absent("rms_norm");
}

}  // namespace quire::cuda::hopper
