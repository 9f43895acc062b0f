// SPDX-License-Identifier: Apache-2.0
// store_index_keys and quantize_index_queries on every GPU: one pass over the rows. Starts kernels on
// the context's stream, allocates nothing and never waits.
#pragma once

#include <string>

#include "quire/ops/quantize_index_queries.h"
#include "quire/ops/store_index_keys.h"

namespace quire::cuda::any::index_rows {

// Empty: a problem on a GPU of compute capability 8.0 or newer whose rows fit into shared memory.
std::string refuse(const StoreIndexKeysProblem& problem);
std::string refuse(const QuantizeIndexQueriesProblem& problem);
void store_index_keys(const StoreIndexKeysArgs& args, const Context& context);
void quantize_index_queries(const QuantizeIndexQueriesArgs& args, const Context& context);

}  // namespace quire::cuda::any::index_rows
