// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/index_rows/launch.h"

namespace quire::cuda::hopper {

std::string refuse(const StoreIndexKeysProblem& problem) {
  return refuse_absent(problem.device);
}

std::string refuse(const QuantizeIndexQueriesProblem& problem) {
  return refuse_absent(problem.device);
}

void store_index_keys(const StoreIndexKeysArgs&, const Context&) {
  throw_absent("store_index_keys");
}

void quantize_index_queries(const QuantizeIndexQueriesArgs&, const Context&) {
  throw_absent("quantize_index_queries");
}

}  // namespace quire::cuda::hopper
