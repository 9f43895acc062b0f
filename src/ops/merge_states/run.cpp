// SPDX-License-Identifier: Apache-2.0
#include "ops/merge_states/candidates.h"

namespace quire {

Plan supports(const MergeStatesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void merge_states(const MergeStatesArgs& args, const Context& context) {
  ops::run_planned(ops::merge_states_candidates(), supports(args, context), args, context);
}

}  // namespace quire
