// SPDX-License-Identifier: Apache-2.0
// Attention over latent rows (512 latent columns that are keys and values, 64 rope columns that are keys only): sizes
// that its kernels share.
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda::sm90::mla_decode {

struct LatentConfig {
  static constexpr int kKeys = 64;  // of a tile
  static constexpr int kLatent = 512;
  static constexpr int kRope = 64;
  static constexpr int kSwizzleColumnWidth = 64;  // 128 bytes of 16-bit numbers: a swizzled row
  static constexpr int kGroupRows = 64;           // of q, that a warpgroup multiplies
  // Of a tile, that a loading warp brings: pages have a multiple.
  static constexpr int kWarpKeys = 16;
};

}  // namespace quire::cuda::sm90::mla_decode
