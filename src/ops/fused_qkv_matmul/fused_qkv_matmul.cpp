// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/fused_qkv_matmul.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/cache_check.h"
#include "ops/fused_qkv_matmul/projection_check.h"
#include "ops/fused_qkv_matmul/projection_dispatch.h"
#include "reference/fused_qkv_matmul.h"

namespace quire {
namespace {

using ops::Arguments;

// Columns of Y after Q: K and V of every head, or the one MLA row.
std::int64_t check_kv_columns(const Arguments& check, const ops::PagedBatch& batch) {
  if (batch.cache.is_mla && batch.cache.num_kv_heads != 1) {
    check.fail("cache.blocks", "of one head for an MLA cache",
               fmt::format("{} heads", batch.cache.num_kv_heads));
  }
  return (batch.cache.is_mla ? 1 : 2) * batch.cache.num_kv_heads * batch.head_dim();
}

const ops::Dispatch<FusedQkvProblem, FusedQkvArgs>& dispatch() {
  static const ops::Dispatch<FusedQkvProblem, FusedQkvArgs> table(
      "fused_qkv_matmul",
      ops::projection_backends<FusedQkvProblem, FusedQkvArgs>(
          "fused_qkv_matmul", [](const FusedQkvProblem& problem) { return problem; },
          [](const FusedQkvArgs& args) { reference::fused_qkv_matmul(args); }));
  return table;
}

}  // namespace

FusedQkvProblem validate(const FusedQkvArgs& args) {
  Arguments check("fused_qkv_matmul");
  ops::check_input(check, args.x);
  const std::int64_t tokens = args.x.shape[0];
  const ops::CacheUse use{.layer = args.layer,
                          .sides = ops::CacheSides::all,
                          .access = ops::CacheAccess::write,
                          .takes_power_scales = false};
  const ops::PagedBatch batch = ops::check_batch(check, args.cache, use, args.row_offsets, tokens);
  check.tensor("out", args.out)
      .is(ops::kActivations, {tokens, "q_dim"})
      .has_dense_rows()
      .is_written();
  const Projection projection(args);
  ops::check_projection(check, projection, args.out.shape[1] + check_kv_columns(check, batch));
  FusedQkvProblem problem;
  ops::describe_projection(projection, problem);
  problem.ragged = batch.ragged;
  problem.cache = batch.cache;
  problem.q_dim = args.out.shape[1];
  problem.alignment = std::min(problem.alignment, ops::cache_alignment(args.cache));
  return problem;
}

Prepared<FusedQkvProblem> prepare(const FusedQkvProblem& problem, const Context& context) {
  return dispatch().prepare("fused_qkv_matmul", problem, context);
}

Plan plan(const FusedQkvProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const FusedQkvArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<FusedQkvProblem>& prepared, const FusedQkvArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void fused_qkv_matmul(const FusedQkvArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
