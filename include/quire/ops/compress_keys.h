// SPDX-License-Identifier: Apache-2.0
// The compressor of DeepSeek-V4: `ratio` tokens become one row of a cache, for attention (sparse_mla) or for the
// indexer. Row e of a sequence, once its last token (e + 1) · ratio - 1 is there:
//   z(t, d) = gate(t, c) + bias(t mod ratio, c)         t: the window's tokens; c: the column d of their series
//   x(d)    = Σ_t softmax_t(z(t, d)) · kv(t, c)         column by column
//   row     = store(rope(x · rsqrt(mean(x²) + ε) · gamma, e · ratio))
// Without overlap (kv as wide as a row) the window is the `ratio` tokens of the row. With overlap (kv twice as wide)
// it is those by the second half of their columns, and the `ratio` tokens before them by the first half; row 0 has no
// tokens before. Rope rotates the pairs (2j, 2j + 1) of the last columns. Nothing is rounded before the row is stored,
// as by `store`.
//
// Tokens whose window is not whole yet are kept in `state`, which belongs to the caller: the token at position p
// stands in its row p mod rows, kv and gate as they came. What a call reads of it are tokens that earlier calls wrote,
// so that a prompt may be cut anywhere: the rows are the same, bit for bit. A sequence without cached tokens reads
// nothing. Rows beyond series · ratio let a sequence go back by as many tokens, of a rejected draft say.
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

struct CompressKeysArgs {
  TensorView kv;           // [tokens, series · width] f32, f16, bf16; series: 1, or 2 with overlap
  TensorView gate;         // the same shape and dtype
  TensorView bias;         // [ratio, series · width] f32, f16, bf16
  TensorView row_offsets;  // u32 [batch + 1]
  // K only, one head, rows of `width` columns. Lengths count tokens: a sequence of n has n / ratio rows.
  PagedKVCache cache;
  std::int64_t layer = 0;
  TensorView gamma;      // [width] f32, f16, bf16
  TensorView freqs_cis;  // [max_pos, rope] f32, f16, bf16: cos, sin interleaved
  double epsilon = 1e-6;
  TensorView
      state;  // kv's dtype or f32 [slots, rows, 2 (kv, gate), series · width]; rows ≥ series · ratio
  std::optional<TensorView> state_slots{};  // u32 [batch]; absent: sequence b has slot b
};

struct CompressKeysProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t width = 0;
  std::int64_t series = 1;
  std::int64_t ratio = 0;
  std::int64_t rope_dim = 0;
  std::int64_t state_rows = 0;
  DType kv_dtype = DType::bf16;
  DType state_dtype = DType::f32;
  bool has_slots = false;

  bool operator==(const CompressKeysProblem&) const = default;
};

QUIRE_API CompressKeysProblem validate(const CompressKeysArgs& args);
QUIRE_API Plan plan(const CompressKeysProblem& problem, const Context& context = {});
QUIRE_API Prepared<CompressKeysProblem> prepare(const CompressKeysProblem& problem,
                                                const Context& context = {});
QUIRE_API Plan supports(const CompressKeysArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<CompressKeysProblem>& prepared, const CompressKeysArgs& args,
                   const Context& context = {});
QUIRE_API void compress_keys(const CompressKeysArgs& args, const Context& context = {});

}  // namespace quire
