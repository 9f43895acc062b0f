// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm90/flash_attention/decode/params.h"

namespace quire::cuda::sm90::flash_attention {

// Of a piece in the workspace.
struct MergeShape {
  int rows = 0;
  int dims = 0;
};

// Right after the decode kernel on the same stream.
void merge_pieces(const DecodeParams& params, const MergeShape& shape, cudaStream_t stream);

}  // namespace quire::cuda::sm90::flash_attention
