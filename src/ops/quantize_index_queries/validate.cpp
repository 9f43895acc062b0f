// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/quantize_index_queries.h"

#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/index_row_check.h"

namespace quire {

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

}  // namespace quire
