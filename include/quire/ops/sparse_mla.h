// SPDX-License-Identifier: Apache-2.0
// Absorbed latent attention over chosen rows only (the indexer's output), for prefill and decode
// alike.
//   s = scale · q · row(index),   out = softmax(s) · row[0, latent)
// Indices are logical positions of the token's own sequence. An index < 0, past the sequence's
// keys, or on an unassigned page counts as absent, wherever it stands; duplicates count as often as
// they are given. There is no mask: the indexer applied it. No valid key gives 0, and LSE -inf
// without a sink. Rows that a token's indices do not name never reach its result, whatever they hold.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

// A second stream of rows that are attended after the chosen ones, with its own cache and indices.
struct SparseExtra {
  PagedKVCache cache;
  std::int64_t layer = 0;
  TensorView indices;                   // i32 [tokens, extra_k]
  std::optional<TensorView> lengths{};  // i32 [tokens]
  // Tokens that a row stands for, as compress_keys writes them: lengths count tokens, and a sequence of n
  // has the rows [0, n / tokens_per_row).
  std::int64_t tokens_per_row = 1;
};

struct SparseMlaArgs {
  TensorView q;            // absorbed [tokens, heads, latent + rope] f32, f16, bf16
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;      // MLA, any row format
  std::int64_t layer = 0;
  TensorView indices;                        // i32 [tokens, top_k]
  std::optional<TensorView> topk_lengths{};  // i32 [tokens]: slots of each row to look at
  double scale = 0.0;
  std::optional<TensorView> sinks{};  // f32 [heads]
  std::optional<SparseExtra> extra{};
  TensorView out;  // [tokens, heads, latent]; as wide as the rows where all of a row is its value
  std::optional<TensorView> lse{};  // f32 [tokens, heads]
  bool batch_invariant = false;     // a token's result is the same bits in any batch
};

struct SparseMlaProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t heads = 0;
  std::int64_t latent_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t top_k = 0;
  std::int64_t extra_k = 0;
  RowFormat extra_format{};  // of the second stream's cache
  std::int64_t extra_tokens_per_row = 1;
  std::int64_t extra_page_size = 0;
  std::int64_t extra_max_rows = 0;  // of a sequence: as many as its keys, or the page table, allow
  double scale = 1.0;
  DType q_dtype = DType::bf16;
  bool has_sinks = false;
  bool batch_invariant = false;
  std::int64_t alignment = 0;  // bytes that divide the address of every row of q, out and caches

  bool operator==(const SparseMlaProblem&) const = default;
};

QUIRE_API SparseMlaProblem validate(const SparseMlaArgs& args);
QUIRE_API Plan plan(const SparseMlaProblem& problem, const Context& context = {});
QUIRE_API Prepared<SparseMlaProblem> prepare(const SparseMlaProblem& problem,
                                             const Context& context = {});
QUIRE_API Plan supports(const SparseMlaArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<SparseMlaProblem>& prepared, const SparseMlaArgs& args,
                   const Context& context = {});
QUIRE_API void sparse_mla(const SparseMlaArgs& args, const Context& context = {});

}  // namespace quire
