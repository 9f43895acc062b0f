// SPDX-License-Identifier: Apache-2.0
// Keys that all rows of a tile see, where registers are for scores and sums.
#pragma once

#include "cuda/common/prefill_attention/query_rows.cuh"

namespace quire::cuda {

// Where V, whose products want neighbouring keys in neighbouring bytes, is transposed.
enum class Transpose : std::uint8_t {
  before,  // once for all rows, in the workspace (transpose_values.h, sm90/flash_attention/prefill/fp8/transpose_ahead.cuh)
  in_place,  // in shared memory, by the warps that load it, for every tile (load_transposed.cuh)
};

// In shared memory, each warp's own, or found anew for each block: that costs 1 % of long tiles, but
// a register less.
template <PrefillConfig kConfig, Transpose kTranspose> class SeenKeys {
 public:
  // By a whole warp, at the beginning of a tile.
  __device__ static void look_over(const PrefillParams& params, const PrefillTile& tile) {
    if constexpr (!kFindsAnew) {
      warps_own() = seen_by_all<kConfig>(params, tile);  // the same by all lanes
      __syncwarp();
    }
  }
  __device__ static KeyInterval by_all(const PrefillParams& params, const PrefillTile& tile) {
    if constexpr (kFindsAnew) {
      return seen_by_all<kConfig>(params, tile);
    } else {
      return warps_own();
    }
  }

 private:
  static constexpr bool kFindsAnew =
      kTranspose == Transpose::in_place && kConfig.ends == Ends::finished;

  __device__ static KeyInterval& warps_own() {
    __shared__ KeyInterval intervals[4 * kConfig.consumers];
    return intervals[threadIdx.x / 32 - 4];
  }
};

}  // namespace quire::cuda
