// SPDX-License-Identifier: Apache-2.0
// What the tile kernels multiply with the weights: rows [rows, K], 128 bytes of K at a time.
#pragma once

#include "quire/tensor_view.h"
#include "quire/tile_descriptor.h"

namespace quire::cuda {

inline constexpr std::int64_t kRowBytesOfK = 128;

// Blocks of K in a row.
inline int blocks_of_k(const TensorView& x) {
  const std::int64_t bytes = bytes_for(x.dtype, x.shape[1]);
  return static_cast<int>((bytes + kRowBytesOfK - 1) / kRowBytesOfK);
}

inline TileDescriptor row_tile(const TensorView& x, int box_rows) {
  TileDescriptor tile;
  tile.dtype = x.dtype;
  tile.rank = 2;
  tile.dims = {x.shape[1], x.shape[0]};
  tile.strides_bytes = {bytes_for(x.dtype, x.strides[0])};
  tile.box = {static_cast<std::int32_t>(kRowBytesOfK / bytes_for(x.dtype, 1)), box_rows};
  tile.swizzle = Swizzle::b128;
  tile.l2_promotion = L2Promotion::b256;
  return tile;
}

}  // namespace quire::cuda
