// SPDX-License-Identifier: Apache-2.0
// The work of a batch as a list of key blocks, and where it is cut.
//
//   sequence 0                              sequence 1
//   | work tile 0 | work tile 1 | …         | tile 0   | tile 1   | …       work tiles: KV heads × tiles
//   |F|0 1 2 3 4 5|F|0 1 2 3 4 5|           |F|0 1 2 3 |                    F: cost of a work tile
//        ^ cut 1       ^ cut 2         ^ cut 3                              CTA c: [c, c + 1)
//
// Everything follows from lengths in device memory: no plan on the host, so that a captured graph
// replays with other lengths. A CTA touches any number of work tiles but shares at most two with
// others: the one that it finds begun and the one that it leaves unfinished. So the splits to be
// merged are bounded by the CTAs. Flash decode walks several work lists side by side (WorkLists): a
// CTA here is then one of its work list's parts.
#pragma once

#include <cstdint>

#include "cuda/common/mask/visible_range.h"
#ifdef __CUDACC__
#include "cuda/common/thread/thread.cuh"
#endif

namespace quire::cuda {

// What every split-KV schedule is made from: the batch, and how its work is cut.

struct DecodeBatch {
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  const std::uint32_t* key_lengths = nullptr;    // [batch]; null: cache length + new tokens
  int size = 0;
  int kv_heads = 0;     // of one work list (WorkLists)
  int group = 0;        // query heads of a KV head
  int tile_tokens = 0;  // tokens whose heads fill a work tile's rows
  VisibleRange visible{};
};

// How the work is cut; see find_work.cuh.
struct SplitSchedule {
  int blocks = 0;             // of a work list, of equal cost; a CTA has one
  int work_tile_cost = 0;     // of beginning a work tile, in key blocks
  int min_split = 1;          // key blocks
  bool is_invariant = false;  // splits depend on the sequence's own length alone
  int max_tiles = 1;          // of a sequence's tokens, for the workspace of invariant splits
};

inline constexpr int kBlockKeys = 64;

// Invariant splits: at most kMaxSplits of a work tile, at least kMinSplitBlocks long.
inline constexpr int kMaxSplits = 16;
inline constexpr int kMinSplitBlocks = 4;

QUIRE_HOST_DEVICE constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

struct SequenceWork {
  int first_token = 0;  // row of q
  int tokens = 0;
  int num_keys = 0;
  int first_block = 0;  // of keys that any of its tokens sees
  int blocks = 0;       // at least one: rows that see nothing are stored like others
  int work_tiles = 0;   // none without tokens

  // Costs fit an int: 2^31 key blocks would be terabytes.
  QUIRE_HOST_DEVICE int work_tile_cost(const SplitSchedule& schedule) const {
    return schedule.work_tile_cost + blocks;
  }
  QUIRE_HOST_DEVICE int cost(const SplitSchedule& schedule) const {
    return work_tiles * work_tile_cost(schedule);
  }
};

// Where the first of a sequence's tokens stands. Not kept with its work: a register more, which not all kernels have.
QUIRE_HOST_DEVICE inline int first_position(const DecodeBatch& batch, int sequence,
                                            const SequenceWork& work) {
  return batch.key_lengths == nullptr ? work.num_keys - work.tokens
                                      : static_cast<int>(batch.cache_lengths[sequence]);
}

// Of a sequence whose keys are counted. The index is opaque on the device: else its address is kept from scan to scan,
// and spilled where registers are few (fp8_wgmma of mla_decode).
QUIRE_HOST_DEVICE inline int given_keys(const std::uint32_t* key_lengths, int sequence) {
#ifdef __CUDA_ARCH__
  sequence = opaque(sequence);
#endif
  const auto given = static_cast<int>(key_lengths[sequence]);
  return given > 0 ? given : 0;
}

// No branch on the token count stands before the last load: the compiler would move the other loads behind it, and
// cold lengths would be two round trips to memory instead of one (0.4 µs of every launch). A sequence without tokens
// has no work tiles.
QUIRE_HOST_DEVICE inline SequenceWork sequence_work(const DecodeBatch& batch, int sequence) {
  SequenceWork work;
  work.first_token = static_cast<int>(batch.row_offsets[sequence]);
  work.tokens = static_cast<int>(batch.row_offsets[sequence + 1]) - work.first_token;
  const auto cached = static_cast<int>(batch.cache_lengths[sequence]);
  work.num_keys = cached + work.tokens;
  if (batch.key_lengths != nullptr) {
    work.num_keys = given_keys(batch.key_lengths, sequence);
  }
  const int last = batch.visible.of(cached + work.tokens - 1, work.num_keys).end;
  work.first_block = batch.visible.of(cached, work.num_keys).first / kBlockKeys;
  work.blocks = (last + kBlockKeys - 1) / kBlockKeys - work.first_block;
  if (work.blocks < 1) {
    work.first_block = 0;
    work.blocks = 1;
  }
  // As a rule one; a division is a hundred cycles before the first copy.
  int tiles = work.tokens > 0 ? 1 : 0;
  if (work.tokens > batch.tile_tokens) tiles = ceil_div(work.tokens, batch.tile_tokens);
  work.work_tiles = batch.kv_heads * tiles;
  return work;
}

// Cuts of a work list of cost `total` into `parts` of equal cost: the first `longer` parts are longer by one.
struct WorkCuts {
  int total = 0;
  int parts = 1;
  int length = 0;
  int longer = 0;

  QUIRE_HOST_DEVICE int at(int cut) const { return cut * length + (cut < longer ? cut : longer); }
  // The first cut at or behind `position`.
  QUIRE_HOST_DEVICE int first_from(int position) const {
    const int border = longer * (length + 1);
    if (position <= border) return ceil_div(position, length + 1);
    return longer + ceil_div(position - border, length);
  }
};

// No more parts than key blocks: then no part is empty and cuts never coincide.
QUIRE_HOST_DEVICE inline WorkCuts cut_work(const SplitSchedule& schedule, int total) {
  if (total <= schedule.blocks)
    return {.total = total, .parts = total > 0 ? total : 1, .length = 1};
  return {.total = total,
          .parts = schedule.blocks,
          .length = total / schedule.blocks,
          .longer = total % schedule.blocks};
}

QUIRE_HOST_DEVICE inline int invariant_split_blocks(int blocks) {
  const int even = ceil_div(blocks, kMaxSplits);
  return even > kMinSplitBlocks ? even : kMinSplitBlocks;
}

// The key block at which a cut `offset` into a work tile takes effect: 0 and `blocks` leave it whole.
QUIRE_HOST_DEVICE inline int cut_block(const SplitSchedule& schedule, int offset, int blocks) {
  const int block = offset - schedule.work_tile_cost;
  if (schedule.is_invariant) {
    const int split = invariant_split_blocks(blocks);
    return block > 0 ? block / split * split : 0;
  }
  if (block < schedule.min_split) return 0;
  return blocks - block < schedule.min_split ? blocks : block;
}

// The splits of a work tile that begins at `begin` on the work list, not invariant: split j is the work of
// CTA first + j.
struct SharedWorkTile {
  int first = 0;
  int splits = 1;
};

QUIRE_HOST_DEVICE inline SharedWorkTile shared_work_tile(const SplitSchedule& schedule,
                                                         const WorkCuts& cuts, int begin,
                                                         int blocks) {
  const int origin = begin + schedule.work_tile_cost;
  const int first = cuts.first_from(origin + schedule.min_split);
  const int end = cuts.first_from(origin + blocks - schedule.min_split + 1);
  return {.first = first - 1, .splits = end > first ? end - first + 1 : 1};
}

// Where a split is kept until it is merged.
QUIRE_HOST_DEVICE inline std::int64_t split_slot(int thread_block, bool begins_work_tile) {
  return 2 * std::int64_t{thread_block} + (begins_work_tile ? 1 : 0);
}
QUIRE_HOST_DEVICE inline std::int64_t invariant_slot(const DecodeBatch& batch,
                                                     const SplitSchedule& schedule, int sequence,
                                                     int kv_head, int tile, int split) {
  const std::int64_t work_tile =
      (std::int64_t{sequence} * batch.kv_heads + kv_head) * schedule.max_tiles + tile;
  return work_tile * kMaxSplits + split;
}

// A CTA's part of the work list (split_schedule.h), work tile by work tile. Plain arithmetic over the lengths, so
// that the host can walk it too.

// The sequence that a position of the work list lies in, and where that sequence begins.
struct WorkPlace {
  int sequence = 0;
  int begin = 0;
  SequenceWork work{};
};

// Key blocks [begin, end) of a work tile, counted from the sequence's first.
struct WorkSplit {
  int begin = 0;
  int end = 0;
  int kv_head = 0;
  int tile = 0;
  std::int64_t slot = -1;  // the whole work tile
};

class WorkWalk {
 public:
  // `place` is that of the CTA's cut, if it has one.
  QUIRE_HOST_DEVICE WorkWalk(const DecodeBatch& batch, const SplitSchedule& schedule,
                             const WorkCuts& cuts, const WorkPlace& place, int thread_block)
      : batch_(batch),
        schedule_(schedule),
        thread_block_(thread_block),
        sequence_(place.sequence),
        work_(place.work) {
    if (thread_block >= cuts.parts || cuts.total == 0) return;
    end_ = cuts.at(thread_block + 1);
    const int position = cuts.at(thread_block);
    const int work_tile_cost = work_.work_tile_cost(schedule);
    work_tile_ = (position - place.begin) / work_tile_cost;
    work_tile_begin_ = place.begin + work_tile_ * work_tile_cost;
    block_ = cut_block(schedule, position - work_tile_begin_, work_.blocks);
  }

  // Of the split that `next` gave last.
  QUIRE_HOST_DEVICE const SequenceWork& work() const { return work_; }
  QUIRE_HOST_DEVICE int sequence() const { return sequence_; }

  QUIRE_HOST_DEVICE bool next(WorkSplit& split) {
    if (work_tile_begin_ >= end_) return false;
    // Not before it is asked for: the lengths of the next sequence are a wait before the first copy.
    if (block_ == work_.blocks && !next_work_tile()) return false;
    const int left = end_ - work_tile_begin_;
    int end = work_.blocks;
    if (left < work_.work_tile_cost(schedule_)) end = cut_block(schedule_, left, work_.blocks);
    if (end <= block_) return false;
    // One tile, as a rule: without a division.
    const int tile = work_tile_ < batch_.kv_heads ? 0 : work_tile_ / batch_.kv_heads;
    split = {.begin = block_,
             .end = end,
             .kv_head = work_tile_ - tile * batch_.kv_heads,
             .tile = tile,
             .slot = -1};
    keep_apart(split);
    block_ = split.end;
    return true;
  }

 private:
  // Gives the split a place in the workspace if it is not the whole work tile.
  QUIRE_HOST_DEVICE void keep_apart(WorkSplit& split) const {
    if (schedule_.is_invariant) {
      const int size = invariant_split_blocks(work_.blocks);
      if (work_.blocks <= size) return;
      if (split.end > split.begin + size) split.end = split.begin + size;
      split.slot = invariant_slot(batch_, schedule_, sequence_, split.kv_head, split.tile,
                                  split.begin / size);
    } else if (split.begin != 0 || split.end != work_.blocks) {
      split.slot = split_slot(thread_block_, split.begin == 0);
    }
  }

  // The next sequence that has work.
  QUIRE_HOST_DEVICE void enter(int sequence) {
    sequence_ = sequence;
    work_tile_ = 0;
    work_ = {};
    for (; sequence_ < batch_.size; ++sequence_) {
      work_ = sequence_work(batch_, sequence_);
      if (work_.work_tiles > 0) return;
    }
  }

  // False if the part ends before it.
  QUIRE_HOST_DEVICE bool next_work_tile() {
    block_ = 0;
    work_tile_begin_ += work_.work_tile_cost(schedule_);
    if (work_tile_begin_ >= end_) return false;
    if (++work_tile_ == work_.work_tiles) enter(sequence_ + 1);
    return true;
  }

  const DecodeBatch& batch_;
  const SplitSchedule& schedule_;
  int thread_block_;
  int end_ = 0;              // of this CTA's part
  int work_tile_begin_ = 0;  // on the work list
  int sequence_ = 0;
  int work_tile_ = 0;
  int block_ = 0;
  SequenceWork work_{};
};

}  // namespace quire::cuda
