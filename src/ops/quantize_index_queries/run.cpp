// SPDX-License-Identifier: Apache-2.0
#include "ops/quantize_index_queries/candidates.h"

namespace quire {

Plan supports(const QuantizeIndexQueriesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void quantize_index_queries(const QuantizeIndexQueriesArgs& args, const Context& context) {
  ops::run_planned(ops::quantize_index_queries_candidates(), supports(args, context), args,
                   context);
}

}  // namespace quire
