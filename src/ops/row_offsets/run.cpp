// SPDX-License-Identifier: Apache-2.0
#include "ops/row_offsets/candidates.h"

namespace quire {

Plan supports(const RowOffsetsArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void row_offsets(const RowOffsetsArgs& args, const Context& context) {
  ops::run_planned(ops::row_offsets_candidates(), supports(args, context), args, context);
}

}  // namespace quire
