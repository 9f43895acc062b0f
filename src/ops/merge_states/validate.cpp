// SPDX-License-Identifier: Apache-2.0
#include "ops/argument.h"
#include "ops/attention_check.h"
#include "quire/ops/merge_states.h"

namespace quire {

MergeStatesProblem validate(const MergeStatesArgs& args) {
  ops::Arguments check("merge_states");
  check.tensor("states", args.states)
      .is(ops::kActivations, {"num_states", "tokens", "heads", "value_dim"})
      .has_dense_rows();
  const auto [num_states, tokens, heads, value_dim] = std::array{
      args.states.shape[0], args.states.shape[1], args.states.shape[2], args.states.shape[3]};
  if (num_states < 1) check.fail("states", "at least one state", args.states.describe());
  check.tensor("lses", args.lses).is(DType::f32, {num_states, tokens, heads});
  check.tensor("out", args.out)
      .is(ops::kActivations, {tokens, heads, value_dim})
      .has_dense_rows()
      .is_written();
  ops::check_lse(check, args.lse, tokens, heads);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .num_states = num_states,
          .tokens = tokens,
          .heads = heads,
          .value_dim = value_dim,
          .dtype = args.states.dtype};
}

}  // namespace quire
