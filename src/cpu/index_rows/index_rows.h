// SPDX-License-Identifier: Apache-2.0
// store_index_keys and quantize_index_queries on the CPU: f32 arithmetic with sums in f64, one
// rounding at the end.
#pragma once

#include <string>

#include "cpu/runtime/target.h"
#include "quire/ops/quantize_index_queries.h"
#include "quire/ops/store_index_keys.h"

namespace quire::cpu {

void store_index_keys(const StoreIndexKeysArgs& args, const Context& context, Target target);
void quantize_index_queries(const QuantizeIndexQueriesArgs& args, const Context& context,
                            Target target);

}  // namespace quire::cpu
