// SPDX-License-Identifier: Apache-2.0
// The batch cut into pieces of attention work. Cuts depend on each sequence alone, so that neither
// its neighbours nor the number of threads can change a bit of its result:
//   - many new tokens: one KV head, a block of tokens, all of their keys;
//   - few new tokens: all of them, some KV heads, 256 to 1024 keys between absolute multiples of
//     that number; the states are merged in the order of the keys. How many heads a piece takes, or
//     how many query rows of one, may depend on the threads: rows never meet.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/attention/mask_ranges.h"
#include "cpu/runtime/thread_pool.h"
#include "quire/kv_operand.h"
#include "quire/paged_kv_cache.h"

namespace quire::cpu {

inline constexpr std::int64_t kShortestSplit = 256;  // keys of a piece of few new tokens

struct SequenceSpan {
  std::int64_t first_token;      // row of q
  std::int64_t num_tokens;       // new ones
  std::int64_t cache_length;     // position of the first new token
  std::int64_t given_keys = -1;  // -1: those before and the new ones

  std::int64_t num_keys() const { return given_keys < 0 ? cache_length + num_tokens : given_keys; }
};

std::vector<SequenceSpan> sequence_spans(const TensorView& row_offsets, const PagedKVCache& cache);
std::vector<SequenceSpan> sequence_spans(const TensorView& row_offsets, const KvOperandRef& keys);

struct WorkShape {
  std::int64_t kv_heads;
  std::int64_t group;  // query heads per KV head
  std::int64_t key_width;
  std::int64_t value_width;
  std::int64_t state_bytes = 512 << 10;  // of a piece's outputs: a quarter of a large L2
  bool one_head_at_a_time = false;
  // Keys of one KV head stand elsewhere than those of another: no piece takes several heads.
  bool heads_are_apart = false;
  std::int64_t most_streamed_rows = 16;  // AttentionEngine::most_streamed_rows
  // About what one thread takes for a key of one head, and for the products with a query row of it.
  double key_nanoseconds = 0.0;
  double product_nanoseconds = 0.0;
};

struct WorkPiece {
  std::int64_t sequence;
  std::int64_t chunk;  // AttentionItem::chunk and ::packed
  std::int64_t packed;
  std::int64_t first_token;  // within the sequence
  std::int64_t num_tokens;
  std::int64_t first_head;
  std::int64_t num_heads;
  std::int64_t first_row;  // of a head's query rows: token · group + head in the group
  std::int64_t num_rows;   // of each head
  KeyRange keys;
  std::int64_t state_row;  // first row of its states; -1: it writes results
  bool is_streamed;
};

// States of one sequence to be merged: [num_splits][kv_heads][tokens · group].
struct WorkMerge {
  std::int64_t sequence;
  std::int64_t num_splits;
  std::int64_t state_row;
};

struct WorkList {
  std::vector<WorkPiece> pieces;  // the most expensive first
  std::vector<WorkMerge> merges;
  std::int64_t state_rows = 0;
  double nanoseconds = 0.0;  // of the pieces, on one thread
};

WorkList make_work_list(const std::vector<SequenceSpan>& sequences, const MaskRanges& mask,
                        const WorkShape& shape, const Workers& workers);

}  // namespace quire::cpu
