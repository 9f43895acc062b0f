// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/sparse_mla/general/launch.h"
#include "cuda/hopper/sparse_mla/launch.h"

namespace quire::cuda::hopper {

std::string refuse_general(const SparseMlaProblem& problem) {
  return refuse_absent(problem.device);
}

void sparse_mla_general(const SparseMlaArgs&, const Context&) {
  throw_absent("sparse_mla");
}

std::string refuse_sparse(const SparseMlaProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t sparse_workspace_bytes(const SparseMlaProblem&) {
  return 0;
}

std::vector<std::pair<std::string, std::string>> sparse_choices(const SparseMlaProblem&) {
  return {};
}

void sparse_mla_tiles(const SparseMlaArgs&, const Context&) {
  throw_absent("sparse_mla");
}

}  // namespace quire::cuda::hopper
