// SPDX-License-Identifier: Apache-2.0
#include "ops/store_index_keys/candidates.h"

namespace quire {

Plan supports(const StoreIndexKeysArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void store_index_keys(const StoreIndexKeysArgs& args, const Context& context) {
  ops::run_planned(ops::store_index_keys_candidates(), supports(args, context), args, context);
}

}  // namespace quire
