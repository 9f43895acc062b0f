// SPDX-License-Identifier: Apache-2.0
#include "cpu/merge_states/merge_states.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/attention_check.h"
#include "ops/dispatch.h"
#include "quire/ops/merge_states.h"
#include "reference/merge_states.h"

namespace quire {
namespace {

const ops::Dispatch<MergeStatesProblem, MergeStatesArgs>& dispatch() {
  static const ops::Dispatch<MergeStatesProblem, MergeStatesArgs> table(
      "merge_states",
      {
          .cuda = cuda::merge_states_kernels(),
          .run_on_cpu = cpu::merge_states,
          .run_reference = [](const MergeStatesArgs& args) { reference::merge_states(args); },
      });
  return table;
}

}  // namespace

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

Prepared<MergeStatesProblem> prepare(const MergeStatesProblem& problem, const Context& context) {
  return dispatch().prepare("merge_states", problem, context);
}

Plan plan(const MergeStatesProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const MergeStatesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<MergeStatesProblem>& prepared, const MergeStatesArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void merge_states(const MergeStatesArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
