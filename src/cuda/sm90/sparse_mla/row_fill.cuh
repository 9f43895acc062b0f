// SPDX-License-Identifier: Apache-2.0
// How a gathering warp brings its rows of a tile into shared memory. 16 bytes of a swizzle column's row r stand
// at piece (p ^ r % 8).
#pragma once

#include "cuda/sm90/sparse_mla/row_finder.cuh"
#include "cuda/sm90/sparse_mla/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

// One definition for each kind. begin(run), then turn(index, meanwhile) for every index from kFirstTurn to
// the run's last tile, which fills tile `index` (from 0 on) and sends for what later ones need. `meanwhile`
// is called where there is time: before the right half, which may have to wait for its place.
template <typename Variant, RowKind kKind = Variant::kConfig.rows,
          int kBlocks = Variant::kConfig.blocks>
class RowFill;

__device__ inline const std::byte* row_of_lane(const std::byte* row, int lane) {
  return reinterpret_cast<const std::byte*>(
      __shfl_sync(0xffffffff, reinterpret_cast<std::uint64_t>(row), lane));
}

// Where piece `piece` of a warp's row `row` stands in that warp's part of a swizzle column.
__device__ inline int piece_offset(int row, int piece) {
  return row * kRowBytes + ((piece ^ (row % 8)) * 16);
}

}  // namespace quire::cuda::sm90::sparse_mla
