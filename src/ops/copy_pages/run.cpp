// SPDX-License-Identifier: Apache-2.0
#include "ops/copy_pages/candidates.h"

namespace quire {

Plan supports(const CopyPagesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void copy_pages(const CopyPagesArgs& args, const Context& context) {
  ops::run_planned(ops::copy_pages_candidates(), supports(args, context), args, context);
}

}  // namespace quire
