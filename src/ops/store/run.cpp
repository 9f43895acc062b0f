// SPDX-License-Identifier: Apache-2.0
#include "ops/store/candidates.h"

namespace quire {

Plan supports(const StoreArgs& args, const Context& context) {
  return plan(validate(args), context);
}

Plan supports(const StoreScalesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void store(const StoreArgs& args, const Context& context) {
  ops::run_planned(ops::store_candidates(), supports(args, context), args, context);
}

void store_scales(const StoreScalesArgs& args, const Context& context) {
  ops::run_planned(ops::store_scales_candidates(), supports(args, context), args, context);
}

}  // namespace quire
