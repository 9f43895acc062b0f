// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/store/launch.h"

namespace quire::cuda::hopper {

std::string refuse(const StoreProblem& problem) {
  return refuse_absent(problem.device);
}

void store(const StoreArgs&, const Context&) {
  throw_absent("store");
}

void store_scales(const StoreScalesArgs&, const Context&) {
  throw_absent("store_scales");
}

}  // namespace quire::cuda::hopper
