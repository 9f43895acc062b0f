// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cpu/mla_indexer/mla_indexer.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/attention_check.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/index_row_check.h"
#include "ops/memory_span.h"
#include "quire/ops/mla_indexer.h"
#include "reference/mla_indexer.h"

namespace quire {
namespace {

using ops::Arguments;

bool has_dense_scales(const PagedKVCache& cache) {
  if (!cache.scales.has_value()) return false;
  const TensorView& scales = *cache.scales;  // [pages, 1, layers, page_size, 1, 1]
  const auto is_multiple = [](std::int64_t bytes) { return bytes % 16 == 0; };
  return scales.strides[3] == 1 && is_multiple(bytes_for(scales.dtype, scales.strides[0])) &&
         is_multiple(bytes_for(scales.dtype, scales.strides[2])) &&
         is_multiple(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(scales.data)));
}

const ops::Dispatch<MlaIndexerProblem, MlaIndexerArgs>& dispatch() {
  static const ops::Dispatch<MlaIndexerProblem, MlaIndexerArgs> table(
      "mla_indexer",
      {
          .cuda = cuda::mla_indexer_kernels(),
          .run_on_cpu = cpu::mla_indexer,
          .run_reference = [](const MlaIndexerArgs& args) { reference::mla_indexer(args); },
      });
  return table;
}

}  // namespace

MlaIndexerProblem validate(const MlaIndexerArgs& args) {
  Arguments check("mla_indexer");
  check.tensor("q", args.q)
      .is(DType::fp8_e4m3, {"tokens", "heads", "head_dim"})
      .has_full_rows()
      .has_dense_rows();
  const std::int64_t tokens = args.q.shape[0];
  check.tensor("q_scale", args.q_scale).is(DType::f32, {tokens, args.q.shape[1]}).is_finite();
  check.is_at_least("tokens_per_key", args.tokens_per_key, 1);
  const ops::CacheUse use{
      .layer = args.layer, .kind = ops::CacheKind::mla, .tokens_per_row = args.tokens_per_key};
  const ops::PagedBatch batch = ops::check_batch(check, args.cache, use, args.row_offsets, tokens);
  ops::check_index_keys(check, batch.cache.row_format);
  if (args.q.shape[2] != batch.head_dim()) {
    check.fail("q", fmt::format("{} wide like the cache", batch.head_dim()), args.q.describe());
  }
  check.is_at_least("top_k", args.top_k, 1);
  ops::check_causal_or_full(check, args.mask);
  check.tensor("out", args.out).is(DType::i32, {tokens, args.top_k}).has_dense_rows().is_written();
  if (args.scores.has_value()) {
    check.tensor("scores", *args.scores)
        .is(DType::f32, {tokens, args.top_k})
        .has_dense_rows()
        .is_written();
  }
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .heads = args.q.shape[1],
          .head_dim = args.q.shape[2],
          .top_k = args.top_k,
          .mask = args.mask.summary(),
          .batch_invariant = args.batch_invariant,
          .wants_scores = args.scores.has_value(),
          .tokens_per_key = args.tokens_per_key,
          .alignment = std::min(ops::row_alignment(args.q), ops::row_alignment(args.cache.blocks)),
          .has_dense_scales = has_dense_scales(args.cache)};
}

Prepared<MlaIndexerProblem> prepare(const MlaIndexerProblem& problem, const Context& context) {
  return dispatch().prepare("mla_indexer", problem, context);
}

Plan plan(const MlaIndexerProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const MlaIndexerArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<MlaIndexerProblem>& prepared, const MlaIndexerArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void mla_indexer(const MlaIndexerArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
