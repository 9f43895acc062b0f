// SPDX-License-Identifier: Apache-2.0
// What every split-KV schedule is made from: the batch, and how its work is cut.
#pragma once

#include <cstdint>

#include "cuda/common/mask/visible_range.h"

namespace quire::cuda {

struct DecodeBatch {
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  int size = 0;
  int kv_heads = 0;     // of one line of work (DecodeLines)
  int group = 0;        // query heads of a KV head
  int tile_tokens = 0;  // tokens whose heads fill an item's rows
  VisibleRange visible{};
};

// How the work is cut; see work_line.cuh.
struct DecodeSplit {
  int blocks = 0;             // of a line of work, of equal cost; a thread block has one
  int item_cost = 0;          // of beginning an item, in key blocks
  int min_piece = 1;          // key blocks
  bool is_invariant = false;  // pieces depend on the sequence's own length alone
  int max_tiles = 1;          // of a sequence's tokens, for the workspace of invariant pieces
};

}  // namespace quire::cuda
