// SPDX-License-Identifier: Apache-2.0
#include "ops/mla_indexer/candidates.h"

namespace quire {

Plan supports(const MlaIndexerArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void mla_indexer(const MlaIndexerArgs& args, const Context& context) {
  ops::run_planned(ops::mla_indexer_candidates(), supports(args, context), args, context);
}

}  // namespace quire
