// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/linear.h"

#include "ops/fused_qkv_matmul/projection_check.h"
#include "ops/fused_qkv_matmul/projection_dispatch.h"
#include "reference/linear.h"

namespace quire {
namespace {

// One without KV heads: the planners count columns of Q alone.
FusedQkvProblem without_cache(const LinearProblem& problem) {
  return {.device = problem.device,
          .ragged = {.tokens = problem.tokens},
          .hidden = problem.hidden,
          .q_dim = problem.columns,
          .x_dtype = problem.x_dtype,
          .out_dtype = problem.out_dtype,
          .weight_format = problem.weight_format,
          .weight_dtype = problem.weight_dtype,
          .weight_packing = problem.weight_packing,
          .group_size = problem.group_size,
          .has_block_scales = problem.has_block_scales,
          .has_zeros = problem.has_zeros,
          .has_perm = problem.has_perm,
          .has_bias = problem.has_bias,
          .activations = problem.activations,
          .allow_fast_accum = problem.allow_fast_accum,
          .allow_tf32 = problem.allow_tf32,
          .batch_invariant = problem.batch_invariant,
          .alignment = problem.alignment};
}

const ops::Dispatch<LinearProblem, LinearArgs>& dispatch() {
  static const ops::Dispatch<LinearProblem, LinearArgs> table(
      "linear",
      ops::projection_backends<LinearProblem, LinearArgs>(
          "linear", without_cache, [](const LinearArgs& args) { reference::linear(args); }));
  return table;
}

}  // namespace

LinearProblem validate(const LinearArgs& args) {
  ops::Arguments check("linear");
  ops::check_input(check, args.x);
  check.tensor("out", args.out)
      .is(ops::kActivations, {args.x.shape[0], "N"})
      .has_dense_rows()
      .is_written();
  const Projection projection(args);
  ops::check_projection(check, projection, args.out.shape[1]);
  LinearProblem problem;
  ops::describe_projection(projection, problem);
  problem.tokens = args.x.shape[0];
  problem.columns = args.out.shape[1];
  return problem;
}

Prepared<LinearProblem> prepare(const LinearProblem& problem, const Context& context) {
  return dispatch().prepare("linear", problem, context);
}

Plan plan(const LinearProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const LinearArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<LinearProblem>& prepared, const LinearArgs& args, const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void linear(const LinearArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
