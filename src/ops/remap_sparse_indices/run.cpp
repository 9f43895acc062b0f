// SPDX-License-Identifier: Apache-2.0
#include "ops/remap_sparse_indices/candidates.h"

namespace quire {

Plan supports(const RemapSparseIndicesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void remap_sparse_indices(const RemapSparseIndicesArgs& args, const Context& context) {
  ops::run_planned(ops::remap_sparse_indices_candidates(), supports(args, context), args, context);
}

}  // namespace quire
