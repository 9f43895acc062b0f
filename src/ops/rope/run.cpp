// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/candidates.h"

namespace quire {

Plan supports(const RopeArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void rope(const RopeArgs& args, const Context& context) {
  ops::run_planned(ops::rope_candidates(), supports(args, context), args, context);
}

}  // namespace quire
