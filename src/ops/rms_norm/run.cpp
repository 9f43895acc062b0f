// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm/candidates.h"

namespace quire {
namespace {

void run(RmsNormArgs& args, KvSide side, const Context& context) {
  args.side = side;
  ops::run_planned(ops::rms_norm_candidates(), supports(args, context), args, context);
}

}  // namespace

Plan supports(const RmsNormArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void rms_norm_key(RmsNormArgs args, const Context& context) {
  run(args, KvSide::key, context);
}

void rms_norm_value(RmsNormArgs args, const Context& context) {
  run(args, KvSide::value, context);
}

}  // namespace quire
