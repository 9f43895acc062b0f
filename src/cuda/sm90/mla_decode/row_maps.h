// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

// What the copy engine is told of `pages`, and box_rows in them.
void set_row_maps(MlaDecodeParams& params);
// Whole rows, 16 at a time: in swizzle columns of 128 bytes (`params.format` is set), and spaced out.
void set_swizzle_column_maps(MlaDecodeParams& params);
void set_unit_maps(MlaDecodeParams& params);

}  // namespace quire::cuda::sm90::mla_decode
