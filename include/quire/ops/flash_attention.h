// SPDX-License-Identifier: Apache-2.0
// Attention of a ragged batch over the paged cache: prefill, decode and mixtures in one call; GQA,
// MQA and MHA.
//
//   s(i, t)  = scale · q(i) · k(t)               query i stands at cache_length + i
//   s        = softcap · tanh(s / softcap)       if softcap > 0
//   s       += slope(head) · (t - position(i))   ALiBi
//   o(i)     = Σ exp(s - m) v(t) / (Σ exp(s - m) + exp(sink(head) - m))
//
// over the keys t < cache_length + new tokens that the mask shows, or t < key_length where key_lengths
// are given; positions are below 2^30 - 1 then, too. With key_blocks, over those of them that its blocks hold. The keys' K and V must be in the cache already. A row
// that sees no key gives 0, and LSE -inf without a sink. LSE is the natural log of the denominator, sink
// included.
//
// Nothing but the sequence's own keys ever reaches a row, and of those that the mask hides K does not. A NaN
// or infinity in the V row of a hidden key may make the row's out NaN (docs/numerics.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/mask.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

struct FlashAttentionArgs {
  TensorView q;            // [tokens, heads, head_dim] f32, f16, bf16
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache{};
  std::int64_t layer = 0;
  std::optional<double> scale{};  // head_dim^-0.5
  Mask mask{};                    // causal
  double softcap = 0.0;
  std::optional<TensorView> alibi_slopes{};  // f32 [heads]
  std::optional<TensorView> sinks{};         // f32 [heads], natural-log units
  // [tokens, heads, value_dim]: values are the first columns of the V row (MLA: of the K row), which is
  // head_dim wide unless V is a tensor of its own.
  TensorView out;
  std::optional<TensorView> lse{};  // f32 [tokens, heads]
  // Tiles and splits independent of the other sequences: a sequence's result is the same bits in
  // any batch of the same cache.max_seq_length, which chooses between the kernels of a GPU.
  bool batch_invariant = false;
  // Over a cache of e4m3, lets a kernel round q, each row by its own power of two, and the weights
  // to e4m3, and multiply on fp8 tensor cores: results are some percent of a weight off.
  bool allow_fp8_products = false;
  // So many first pages are the same in the tables of all sequences with new tokens, and stand in
  // their caches (a system prompt, say): cache_length ≥ shared_prefix_pages · page_size. Kernels may
  // then read those keys once for the whole batch; the result is the same but for roundings.
  std::int64_t shared_prefix_pages = 0;
  // Bytes of workspace that copies of K and V may take where prefill makes some (over a quantized cache): sequences are
  // then attended in parts of the batch whose copies fit, one after another. Where those of a single sequence do not,
  // a kernel without copies runs. 0: copies of the whole batch, up to 1 GiB.
  std::int64_t max_workspace_bytes = 0;
  // u32 [batch]: the keys of a sequence, whatever its new tokens are: a pass over the context alone, a
  // part of the context, or none (out 0). Queries stand at cache_length + i as ever.
  std::optional<TensorView> key_lengths{};
  // In place of a cache, which is left empty: K and V of a ragged batch without pages, as new tokens alone,
  // encoders and chunks of a context have them. Sequence b owns the keys [key_offsets[b],
  // key_offsets[b + 1]). Query i stands at keys - queries + i: the last query at the last key; those before the
  // first key see none of them under a causal mask.
  std::optional<TensorView> k{};  // [total_keys, kv_heads, head_dim] f32, f16, bf16, fp8
  std::optional<TensorView> v{};  // [total_keys, kv_heads, value_dim or more], of k's dtype
  std::optional<TensorView> key_offsets{};  // u32 [batch + 1], from 0 to total_keys
  // Sparse attention: every token and KV head has a list of blocks, and its heads see, of the keys above, those
  // alone that stand in them. Block b is the keys [b · key_block_size, (b + 1) · key_block_size) of the sequence;
  // blocks of one key make lists of keys. Ids come in any order, each at most once: an error on the host, and on a
  // GPU, where nobody looks, a block that is named again may count again. An id that is negative, or past the
  // sequence's keys, names nothing, wherever it stands.
  std::optional<TensorView> key_blocks{};  // i32 [tokens, kv_heads, max_blocks]
  std::int64_t key_block_size = 128;
};

struct FlashAttentionProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  bool has_head_scales = false;  // f32, one for all rows of a KV head
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  DType q_dtype = DType::bf16;
  DType out_dtype = DType::bf16;
  MaskSummary mask{};
  double scale = 1.0;
  bool has_softcap = false;
  bool has_alibi = false;
  bool has_sinks = false;
  bool wants_lse = false;
  bool batch_invariant = false;
  bool allow_fp8_products = false;
  std::int64_t shared_prefix_pages = 0;
  std::int64_t max_workspace_bytes = 0;
  bool has_key_lengths = false;
  // k, v and key_offsets; `cache` describes them as one page of all rows, a power of two of them.
  bool has_ragged_keys = false;
  std::int64_t max_key_blocks = 0;  // ids of a list; 0: no lists
  std::int64_t key_block_size = 0;  // of lists
  std::int64_t alignment = 1;       // bytes, of every row of q, out and the cache

  bool operator==(const FlashAttentionProblem&) const = default;
};

QUIRE_API FlashAttentionProblem validate(const FlashAttentionArgs& args);
QUIRE_API Plan plan(const FlashAttentionProblem& problem, const Context& context = {});
QUIRE_API Prepared<FlashAttentionProblem> prepare(const FlashAttentionProblem& problem,
                                                  const Context& context = {});
QUIRE_API Plan supports(const FlashAttentionArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<FlashAttentionProblem>& prepared, const FlashAttentionArgs& args,
                   const Context& context = {});
QUIRE_API void flash_attention(const FlashAttentionArgs& args, const Context& context = {});

}  // namespace quire
