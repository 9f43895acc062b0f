// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/hopper/mla_decode/params.h"

namespace quire::cuda::hopper {

// Right after the attention kernel on the same stream.
// `blocks`: that one had.
void merge_mla_pieces(const MlaDecodeParams& params, int blocks, cudaStream_t stream);

}  // namespace quire::cuda::hopper
