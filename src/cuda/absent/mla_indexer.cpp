// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/mla_indexer/general/launch.h"
#include "cuda/hopper/mla_indexer/launch.h"

namespace quire::cuda::hopper {

std::string refuse_general(const MlaIndexerProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t general_workspace_bytes(const MlaIndexerProblem&) {
  return 0;
}

void mla_indexer_general(const MlaIndexerArgs&, const Context&) {
  throw_absent("mla_indexer");
}

std::string refuse_index(const MlaIndexerProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t index_workspace_bytes(const MlaIndexerProblem&) {
  return 0;
}

std::vector<std::pair<std::string, std::string>> index_choices(const MlaIndexerProblem&) {
  return {};
}

void mla_indexer(const MlaIndexerArgs&, const Context&) {
  throw_absent("mla_indexer");
}

}  // namespace quire::cuda::hopper
