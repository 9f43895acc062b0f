// SPDX-License-Identifier: Apache-2.0
// The order of weight rows in a B tile that makes a wgmma thread own whole 16-byte runs of outputs.
//
// A thread of a quad (c = 0 … 3) receives columns 8s + 2c + e of every 32 (s = 0 … 3, e = 0, 1): four
// scattered pairs. Storing weight row 8c + 2s + e where the instruction looks for row 8s + 2c + e
// gives it columns 8c … 8c + 7 instead: one 16-byte store, no shuffle, no staging. TMA
// does the reordering, as a box over (K, e, c, s, group) whose strides name the source rows
// (make_quad_ordered_tile).
#pragma once

#include "quire/tile_builders.h"

namespace quire::cuda {

inline constexpr int kGroupRows = kQuadGroupRows;

}  // namespace quire::cuda
