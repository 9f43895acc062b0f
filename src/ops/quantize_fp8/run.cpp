// SPDX-License-Identifier: Apache-2.0
#include "ops/quantize_fp8/candidates.h"

namespace quire {

Plan supports(const QuantizeFp8Args& args, const Context& context) {
  return plan(validate(args), context);
}

void quantize_fp8(const QuantizeFp8Args& args, const Context& context) {
  ops::run_planned(ops::quantize_fp8_candidates(), supports(args, context), args, context);
}

}  // namespace quire
