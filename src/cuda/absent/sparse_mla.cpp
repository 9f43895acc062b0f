// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/sparse_mla/general/launch.h"

namespace quire::cuda::hopper {

std::string refuse_general(const SparseMlaProblem& problem) {
  return refuse_absent(problem.device);
}

void sparse_mla_general(const SparseMlaArgs&, const Context&) {
  throw_absent("sparse_mla");
}

}  // namespace quire::cuda::hopper
