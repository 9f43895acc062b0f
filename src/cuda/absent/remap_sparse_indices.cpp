// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/remap_sparse_indices/launch.h"

namespace quire::cuda::hopper {

std::string refuse(const RemapSparseIndicesProblem& problem) {
  return refuse_absent(problem.device);
}

void remap_sparse_indices(const RemapSparseIndicesArgs&, const Context&) {
  throw_absent("remap_sparse_indices");
}

}  // namespace quire::cuda::hopper
