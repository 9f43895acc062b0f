// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_qkv_matmul/candidates.h"

namespace quire {

Plan supports(const FusedQkvArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void fused_qkv_matmul(const FusedQkvArgs& args, const Context& context) {
  ops::run_planned(ops::fused_qkv_matmul_candidates(), supports(args, context), args, context);
}

}  // namespace quire
