// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cpu/sparse_mla/sparse_mla.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/attention_check.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/memory_span.h"
#include "quire/ops/sparse_mla.h"
#include "reference/sparse_mla.h"

namespace quire {
namespace {

using ops::Arguments;

void check_indices(Arguments& check, ops::ArgumentName name, const TensorView& indices,
                   ops::ArgumentName lengths_name, const std::optional<TensorView>& lengths,
                   std::int64_t tokens) {
  check.tensor(name, indices).is(DType::i32, {tokens, "top_k"}).has_dense_rows();
  if (lengths.has_value()) {
    check.tensor(lengths_name, *lengths).is(DType::i32, {tokens}).has_dense_rows();
  }
}

// The second stream shares the batch and the shape of the rows, not their format.
ops::PagedBatch check_extra(Arguments& check, const SparseMlaArgs& args,
                            const ops::PagedBatch& batch) {
  const SparseExtra& extra = *args.extra;
  check.tensor("extra.cache.cache_lengths", extra.cache.cache_lengths)
      .is(DType::u32, {batch.ragged.batch});
  check.is_at_least("extra.tokens_per_row", extra.tokens_per_row, 1);
  const ops::CacheUse use{.name = "extra.cache",
                          .layer = extra.layer,
                          .layer_name = "extra.layer",
                          .kind = ops::CacheKind::mla,
                          .tokens_per_row = extra.tokens_per_row};
  const ops::PagedBatch own =
      ops::check_batch(check, extra.cache, use, args.row_offsets, batch.ragged.tokens);
  if (own.head_dim() != batch.head_dim()) {
    check.fail("extra.cache", fmt::format("{} wide like the cache", batch.head_dim()),
               std::to_string(own.head_dim()));
  }
  check_indices(check, "extra.indices", extra.indices, "extra.lengths", extra.lengths,
                batch.ragged.tokens);
  return own;
}

std::int64_t most_rows(const ops::PagedBatch& batch) {
  const std::int64_t room = batch.cache.max_pages * batch.cache.page_size;
  return batch.ragged.max_keys < 0 ? room : std::min(room, batch.ragged.max_keys);
}

std::int64_t alignment_of(const SparseMlaArgs& args) {
  std::int64_t alignment = std::min({ops::row_alignment(args.q), ops::row_alignment(args.out),
                                     ops::row_alignment(args.cache.blocks)});
  if (args.extra.has_value()) {
    alignment = std::min(alignment, ops::row_alignment(args.extra->cache.blocks));
  }
  return alignment;
}

const ops::Dispatch<SparseMlaProblem, SparseMlaArgs>& dispatch() {
  static const ops::Dispatch<SparseMlaProblem, SparseMlaArgs> table(
      "sparse_mla",
      {
          .cuda = cuda::sparse_mla_kernels(),
          .run_on_cpu = cpu::sparse_mla,
          .run_reference = [](const SparseMlaArgs& args) { reference::sparse_mla(args); },
      });
  return table;
}

}  // namespace

SparseMlaProblem validate(const SparseMlaArgs& args) {
  Arguments check("sparse_mla");
  check.tensor("q", args.q)
      .is(ops::kActivations, {"tokens", "heads", "latent + rope"})
      .has_full_rows()
      .has_dense_rows();
  const std::int64_t tokens = args.q.shape[0];
  const std::int64_t heads = args.q.shape[1];
  const ops::PagedBatch batch =
      ops::check_batch(check, args.cache, {.layer = args.layer, .kind = ops::CacheKind::mla},
                       args.row_offsets, tokens);
  if (args.q.shape[2] != batch.head_dim()) {
    check.fail("q", fmt::format("{} wide like the cache", batch.head_dim()), args.q.describe());
  }
  check_indices(check, "indices", args.indices, "topk_lengths", args.topk_lengths, tokens);
  check.is_positive("scale", args.scale);
  ops::check_per_head(check, "sinks", args.sinks, heads);
  ops::PagedBatch extra{};
  if (args.extra.has_value()) extra = check_extra(check, args, batch);
  ops::check_attention_out(check, args.out, args.q, "latent");
  ops::check_value_columns(check, args.out, batch.head_dim());
  ops::check_lse(check, args.lse, tokens, heads);
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .heads = heads,
          .latent_dim = args.out.shape[2],
          .rope_dim = batch.head_dim() - args.out.shape[2],
          .top_k = args.indices.shape[1],
          .extra_k = args.extra.has_value() ? args.extra->indices.shape[1] : 0,
          .extra_format = extra.cache.row_format,
          .extra_tokens_per_row = args.extra.has_value() ? args.extra->tokens_per_row : 1,
          .extra_page_size = args.extra.has_value() ? extra.cache.page_size : 0,
          .extra_max_rows = args.extra.has_value() ? most_rows(extra) : 0,
          .scale = args.scale,
          .q_dtype = args.q.dtype,
          .has_sinks = args.sinks.has_value(),
          .batch_invariant = args.batch_invariant,
          .alignment = alignment_of(args)};
}

Prepared<SparseMlaProblem> prepare(const SparseMlaProblem& problem, const Context& context) {
  return dispatch().prepare("sparse_mla", problem, context);
}

Plan plan(const SparseMlaProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const SparseMlaArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<SparseMlaProblem>& prepared, const SparseMlaArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void sparse_mla(const SparseMlaArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
