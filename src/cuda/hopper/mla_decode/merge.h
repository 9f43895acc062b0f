// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/hopper/mla_decode/params.h"

namespace quire::cuda::hopper {

// Right after the attention kernel on the same stream.
void merge_mla_pieces(const MlaDecodeParams& params, cudaStream_t stream);

}  // namespace quire::cuda::hopper
