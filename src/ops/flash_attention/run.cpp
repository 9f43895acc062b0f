// SPDX-License-Identifier: Apache-2.0
#include "ops/flash_attention/candidates.h"

namespace quire {

Plan supports(const FlashAttentionArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void flash_attention(const FlashAttentionArgs& args, const Context& context) {
  ops::run_planned(ops::flash_attention_candidates(), supports(args, context), args, context);
}

}  // namespace quire
