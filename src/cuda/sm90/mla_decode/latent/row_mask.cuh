// SPDX-License-Identifier: Apache-2.0
// Which keys the rows of an item see.
#pragma once

#include "cuda/sm90/mla_decode/latent/params.h"
#include "cuda/sm90/mla_decode/latent/products.cuh"

namespace quire::cuda::sm90::mla_decode {

class LatentRowMask {
 public:
  // `rows`: that an item may have.
  __device__ LatentRowMask(const LatentParams& params, const LatentItem& item, int rows)
      : params_(params), item_(item) {
    const int last = item.position + (min(item.rows, rows) - 1) / params.heads;
    all_see_ = {.first = params.visible.of(last, item.num_keys).first,
                .end = params.visible.of(item.position, item.num_keys).end};
  }

  // Keys of a tile that are the sequence's.
  __device__ int num_keys(int tile) const {
    return item_.num_keys - item_.first_key - tile * LatentConfig::kKeys;
  }

  // The item's tiles in which every row sees every key (those below 0 are not asked for).
  __device__ KeyInterval whole_tiles() const {
    constexpr int kKeys = LatentConfig::kKeys;
    return {.first = (all_see_.first - item_.first_key + kKeys - 1) / kKeys,
            .end = (all_see_.end - item_.first_key) / kKeys};
  }

  // Selects, never adds: what stands behind a sequence's end may be anything. `row`: the thread's
  // first; the second stands 8 below it.
  __device__ void hide(int tile, std::uint64_t valid, int row, float (&scores)[kTileScores]) const {
    if (is_whole(tile, valid)) return;
    const int first_key = first_key_of(tile);
    const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int position = item_.position + (row + 8 * i) / params_.heads;
      const KeyInterval seen = params_.visible.of(position, item_.num_keys);
#pragma unroll
      for (int j = 2 * i; j < kTileScores; j += 4) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = 8 * (j / 4) + column + e;
          const int key = first_key + at;
          const bool is_seen = (valid >> at & 1) != 0 && key >= seen.first && key < seen.end;
          if (!is_seen) scores[j + e] = -INFINITY;
        }
      }
    }
  }

  // The same for keys × rows. `key`: of the tile, the thread's first; the second stands 8 below it. Rows
  // are 8j + 2 (lane % 4) + e.
  template <int kScores>
  __device__ void hide_across(int tile, std::uint64_t valid, int key,
                              float (&scores)[kScores]) const {
    if (is_whole(tile, valid)) return;
    const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int row = 8 * (j / 4) + column + j % 2;
      const KeyInterval seen =
          params_.visible.of(item_.position + row / params_.heads, item_.num_keys);
      const int at = key + j / 2 % 2 * 8;
      const int position = first_key_of(tile) + at;
      const bool is_seen = (valid >> at & 1) != 0 && position >= seen.first && position < seen.end;
      if (!is_seen) scores[j] = -INFINITY;
    }
  }

 private:
  __device__ int first_key_of(int tile) const {
    return item_.first_key + tile * LatentConfig::kKeys;
  }
  // Every row sees every key.
  __device__ bool is_whole(int tile, std::uint64_t valid) const {
    const int first_key = first_key_of(tile);
    return valid == ~std::uint64_t{0} && first_key >= all_see_.first &&
           first_key + LatentConfig::kKeys <= all_see_.end;
  }

  const LatentParams& params_;
  const LatentItem& item_;
  KeyInterval all_see_;
};

}  // namespace quire::cuda::sm90::mla_decode
