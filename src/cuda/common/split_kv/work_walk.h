// SPDX-License-Identifier: Apache-2.0
// A thread block's part of the line (split_schedule.h), item by item. Plain arithmetic over the lengths, so
// that the host can walk it too.
#pragma once

#include "cuda/common/split_kv/split_schedule.h"

namespace quire::cuda {

// The sequence that a position of the line lies in, and where that sequence begins.
struct LinePlace {
  int sequence = 0;
  int begin = 0;
  SequenceWork work{};
};

// Key blocks [begin, end) of an item, counted from the sequence's first.
struct WorkPiece {
  int begin = 0;
  int end = 0;
  int kv_head = 0;
  int tile = 0;
  std::int64_t slot = -1;  // the whole item
};

class WorkWalk {
 public:
  // `place` is that of the thread block's cut, if it has one.
  QUIRE_HOST_DEVICE WorkWalk(const DecodeBatch& batch, const DecodeSplit& split,
                             const WorkCuts& cuts, const LinePlace& place, int thread_block)
      : batch_(batch),
        split_(split),
        thread_block_(thread_block),
        sequence_(place.sequence),
        work_(place.work) {
    if (thread_block >= cuts.parts || cuts.total == 0) return;
    end_ = cuts.at(thread_block + 1);
    const int position = cuts.at(thread_block);
    const int item_cost = work_.item_cost(split);
    item_ = (position - place.begin) / item_cost;
    item_begin_ = place.begin + item_ * item_cost;
    block_ = cut_block(split, position - item_begin_, work_.blocks);
  }

  // Of the piece that `next` gave last.
  QUIRE_HOST_DEVICE const SequenceWork& work() const { return work_; }
  QUIRE_HOST_DEVICE int sequence() const { return sequence_; }

  QUIRE_HOST_DEVICE bool next(WorkPiece& piece) {
    if (item_begin_ >= end_) return false;
    // Not before it is asked for: the lengths of the next sequence are a wait before the first copy.
    if (block_ == work_.blocks && !next_item()) return false;
    const int left = end_ - item_begin_;
    int end = work_.blocks;
    if (left < work_.item_cost(split_)) end = cut_block(split_, left, work_.blocks);
    if (end <= block_) return false;
    // One tile, as a rule: without a division.
    const int tile = item_ < batch_.kv_heads ? 0 : item_ / batch_.kv_heads;
    piece = {.begin = block_,
             .end = end,
             .kv_head = item_ - tile * batch_.kv_heads,
             .tile = tile,
             .slot = -1};
    keep_apart(piece);
    block_ = piece.end;
    return true;
  }

 private:
  // Gives the piece a place in the workspace if it is not the whole item.
  QUIRE_HOST_DEVICE void keep_apart(WorkPiece& piece) const {
    if (split_.is_invariant) {
      const int size = invariant_piece_blocks(work_.blocks);
      if (work_.blocks <= size) return;
      if (piece.end > piece.begin + size) piece.end = piece.begin + size;
      piece.slot =
          invariant_slot(batch_, split_, sequence_, piece.kv_head, piece.tile, piece.begin / size);
    } else if (piece.begin != 0 || piece.end != work_.blocks) {
      piece.slot = piece_slot(thread_block_, piece.begin == 0);
    }
  }

  // The next sequence that has work.
  QUIRE_HOST_DEVICE void enter(int sequence) {
    sequence_ = sequence;
    item_ = 0;
    work_ = {};
    for (; sequence_ < batch_.size; ++sequence_) {
      work_ = sequence_work(batch_, sequence_);
      if (work_.items > 0) return;
    }
  }

  // False if the part ends before it.
  QUIRE_HOST_DEVICE bool next_item() {
    block_ = 0;
    item_begin_ += work_.item_cost(split_);
    if (item_begin_ >= end_) return false;
    if (++item_ == work_.items) enter(sequence_ + 1);
    return true;
  }

  const DecodeBatch& batch_;
  const DecodeSplit& split_;
  int thread_block_;
  int end_ = 0;         // of this thread block's part
  int item_begin_ = 0;  // on the line
  int sequence_ = 0;
  int item_ = 0;
  int block_ = 0;
  SequenceWork work_{};
};

}  // namespace quire::cuda
