// SPDX-License-Identifier: Apache-2.0
#include "ops/mla_decode/candidates.h"

namespace quire {

Plan supports(const MlaDecodeArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void mla_decode(const MlaDecodeArgs& args, const Context& context) {
  ops::run_planned(ops::mla_decode_candidates(), supports(args, context), args, context);
}

}  // namespace quire
