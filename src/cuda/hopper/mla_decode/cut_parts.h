// SPDX-License-Identifier: Apache-2.0
// Where the work of mla_decode is cut (flash_attention/decode/work_line.h).
#pragma once

#include "cuda/hopper/flash_attention/decode/work_line.h"

namespace quire::cuda::hopper {

// A cluster has two tiles or more, if there are so many: a second tile takes it less time than another piece takes to
// be stored and merged (one sequence of 8 192 keys: 18.1 µs with 64 pieces of 16 heads, 18.8 with 128).
QUIRE_HOST_DEVICE inline WorkCuts cut_parts(const DecodeSplit& split, int tiles) {
  const int pairs = tiles / 2;
  DecodeSplit fewer = split;
  if (pairs < split.blocks) fewer.blocks = pairs > 1 ? pairs : 1;
  return cut_work(fewer, tiles);
}

}  // namespace quire::cuda::hopper
