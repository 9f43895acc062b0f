// SPDX-License-Identifier: Apache-2.0
#include "ops/sparse_mla/candidates.h"

namespace quire {

Plan supports(const SparseMlaArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void sparse_mla(const SparseMlaArgs& args, const Context& context) {
  ops::run_planned(ops::sparse_mla_candidates(), supports(args, context), args, context);
}

}  // namespace quire
