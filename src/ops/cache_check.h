// SPDX-License-Identifier: Apache-2.0
// Everything about a PagedKVCache and the ragged batch that goes with it: layout, row format,
// scales, lengths against the page table, page ids. Ops describe what they do with the cache and
// get the facts back.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/argument.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"

namespace quire::ops {

enum class CacheSides : std::uint8_t {
  key,
  value,
  all,  // K, and V unless the cache is MLA
};

enum class CacheAccess : std::uint8_t { read, write };

// How an op finds its rows: by lengths and page table, or by slots, with which neither is looked at.
enum class CacheRows : std::uint8_t { paged, slotted };

enum class CacheKind : std::uint8_t {
  any,
  mla,  // K only, one head
};

struct CacheUse {
  const char* name = "cache";           // as the caller knows it
  std::optional<std::int64_t> layer{};  // absent: the op works on the page table alone
  const char* layer_name = "layer";
  CacheSides sides = CacheSides::key;
  CacheAccess access = CacheAccess::read;
  CacheKind kind = CacheKind::any;
  // Of both sides: whether V's rows may be of another width than K's.
  bool takes_value_width = false;
  // The op's own argument, u32 [batch]: keys of a sequence, where they are not those of cache_lengths and
  // the new tokens. Null: none.
  const TensorView* key_lengths = nullptr;
  CacheRows rows = CacheRows::paged;
  // Tokens that a row stands for; lengths count tokens.
  std::int64_t tokens_per_row = 1;
  // Whether rows may have e8m0 scales. Not where an op quantizes sums that every kernel rounds in its own way: at a
  // power of two one of them would choose twice the scale of another.
  bool takes_power_scales = true;
};

struct PagedBatch {
  CacheShape cache{};
  RaggedSize ragged{};
  // One past the last position of a new token; -1 where lengths are not on the host.
  std::int64_t end_position = -1;

  std::int64_t head_dim() const { return cache.row_format.width(); }
};

// Bytes that every row of K and V is aligned to.
std::int64_t cache_alignment(const PagedKVCache& cache);

// Shapes and dtypes alone; the row format is V's where that is the only side. `row_offsets` and values
// are left to check_batch.
CacheShape check_cache(Arguments& check, const PagedKVCache& cache, const CacheUse& use);

// check_cache and use.key_lengths; row_offsets u32 [batch + 1] from 0 to `tokens` (if that is known)
// without a step back; every sequence's keys inside its row of the page table; the page ids of those keys; the
// static scales that the keys meet.
PagedBatch check_batch(Arguments& check, const PagedKVCache& cache, const CacheUse& use,
                       const TensorView& row_offsets, std::optional<std::int64_t> tokens);

// check_cache; slots i64 or i32 [tokens], below the end of the pool where they are on the host; the static scales that
// they meet.
PagedBatch check_slots(Arguments& check, const PagedKVCache& cache, const CacheUse& use,
                       const TensorView& slots, std::int64_t tokens);
// The values alone, of slots that are on the host.
void check_slot_values(const Arguments& check, const PagedKVCache& cache, const TensorView& slots);

// The static scales of a page, where they are on the host: positive and finite. `view` is of K or V of a layer.
void check_scale_page(const Arguments& check, const KvLayerView& view, std::int64_t page,
                      ArgumentName name);

// The values alone, of tensors that are on the host: what check_batch does once the shapes are right.
PagedBatch check_batch_values(const Arguments& check, const PagedKVCache& cache,
                              const CacheUse& use, const TensorView& row_offsets,
                              std::optional<std::int64_t> tokens);

// row_offsets alone, where its shape is right: from 0, without a step back, to `tokens` if that is
// given.
void check_row_offsets(const Arguments& check, const TensorView& row_offsets,
                       std::optional<std::int64_t> tokens);

// The same of any offsets [batch + 1].
struct OffsetsName {
  const char* argument;
  const char* counted;  // "tokens"
};
void check_offsets(const Arguments& check, const OffsetsName& name, const TensorView& tensor,
                   std::optional<std::int64_t> total);

// New tokens of a sequence, and its keys once they are stored, or those of key_lengths. On the host.
std::int64_t num_new_tokens(const TensorView& row_offsets, std::int64_t sequence);
std::int64_t num_keys(const PagedKVCache& cache, const TensorView& row_offsets,
                      std::int64_t sequence, const TensorView* key_lengths = nullptr);

// Ops that change stored numbers in place leave scales alone: the columns [begin, end) must have
// none.
void check_unscaled(const Arguments& check, const PagedKVCache& cache, std::int64_t begin,
                    std::int64_t end);

}  // namespace quire::ops
