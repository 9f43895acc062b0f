// SPDX-License-Identifier: Apache-2.0
// Which keys the rows of an item see: found once for an item, a thread for each row, and looked up where a tile is at a
// border. (As latent_attention/row_sight.cuh finds them, sixteen rows of a thread took more registers than there are.)
#pragma once

#include "cuda/hopper/mla_decode/few_rows/thread_rows.cuh"
#include "cuda/hopper/mla_decode/many_rows/shared.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class TileSight {
 public:
  using Rows = ThreadRows<kConfig>;

  // `thread`: of the warps that score, which meet behind this. `first_row`: of the item, this block's.
  __device__ static void find(const LatentParams& params, const LatentItem& item, int first_row,
                              int thread, ManyRowsShared<kConfig>& shared) {
    const auto seen_from = [&](int row) {
      const KeyInterval seen =
          params.visible.of(item.position + row / params.heads, item.num_keys);
      return int2{seen.first - item.first_key, seen.end - item.first_key};
    };
    if (thread < kConfig.rows) shared.seen[thread] = seen_from(first_row + thread);
    if (thread == 0) {
      const int last = min(item.rows, params.pieces.rows) - 1;
      shared.all_see = {seen_from(last).x, seen_from(0).y};
    }
  }

  // Selects, never adds: what stands behind a sequence's end may be anything. `key`: the thread's first, from the item's
  // first on; the second stands 8 below it. `live`: how many of the warp's 16 are there.
  __device__ static void hide(const ManyRowsShared<kConfig>& shared, int tile, int warp, int live,
                              float (&scores)[Rows::kScores]) {
    const int first = tile * FewRowsConfig::kKeys + FewRowsConfig::kUnitKeys * warp;
    const int2 all = shared.all_see;
    if (live == FewRowsConfig::kUnitKeys && first >= all.x &&
        first + FewRowsConfig::kUnitKeys <= all.y) {
      return;
    }
#pragma unroll
    for (int i = 0; i < Rows::kThreadRows; ++i) {
      const int2 seen = shared.seen[Rows::row(i)];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int own = Rows::key() + 8 * e;
        const int key = first + own;
        if (own >= live || key < seen.x || key >= seen.y) {
          scores[i / 2 * 4 + 2 * e + i % 2] = -INFINITY;
        }
      }
    }
  }
};

}  // namespace quire::cuda::hopper
