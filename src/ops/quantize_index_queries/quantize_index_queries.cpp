// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/quantize_index_queries.h"
#include "cpu/index_rows/index_rows.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/index_row_check.h"
#include "reference/index_rows.h"

namespace quire {
namespace {

const ops::Dispatch<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs>& dispatch() {
  static const ops::Dispatch<QuantizeIndexQueriesProblem, QuantizeIndexQueriesArgs> table(
      "quantize_index_queries",
      {
          .cuda = cuda::quantize_index_queries_kernels(),
          .run_on_cpu = cpu::quantize_index_queries,
          .run_reference =
              [](const QuantizeIndexQueriesArgs& args) { reference::quantize_index_queries(args); },
      });
  return table;
}

}  // namespace

using ops::Arguments;

QuantizeIndexQueriesProblem validate(const QuantizeIndexQueriesArgs& args) {
  Arguments check("quantize_index_queries");
  check.tensor("q", args.q)
      .is(ops::kActivations, {"tokens", "heads", "head_dim"})
      .has_full_rows()
      .has_dense_rows();
  const auto [tokens, heads, head_dim] =
      std::array{args.q.shape[0], args.q.shape[1], args.q.shape[2]};
  const ops::PagedBatch batch = ops::check_batch(check, args.cache, {}, args.row_offsets, tokens);
  if (args.weights) {
    check.tensor("weights", *args.weights).is(ops::kActivations, {tokens, heads}).is_finite();
  }
  check.is_finite("factor", args.factor);
  const std::int64_t rope_dim = ops::check_index_row(
      check, {.freqs_cis = args.freqs_cis, .hadamard = args.hadamard}, head_dim, batch);
  check.tensor("out", args.out)
      .is(DType::fp8_e4m3, {tokens, heads, head_dim})
      .has_dense_rows()
      .is_written();
  check.tensor("q_scale", args.q_scale).is(DType::f32, {tokens, heads}).is_written();
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .heads = heads,
          .head_dim = head_dim,
          .rope_dim = rope_dim,
          .q_dtype = args.q.dtype,
          .interleaved = args.interleaved,
          .hadamard = args.hadamard,
          .scale_rounding = args.scale_rounding};
}

Prepared<QuantizeIndexQueriesProblem> prepare(const QuantizeIndexQueriesProblem& problem,
                                              const Context& context) {
  return dispatch().prepare("quantize_index_queries", problem, context);
}

Plan plan(const QuantizeIndexQueriesProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const QuantizeIndexQueriesArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<QuantizeIndexQueriesProblem>& prepared,
         const QuantizeIndexQueriesArgs& args, const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void quantize_index_queries(const QuantizeIndexQueriesArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
