// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

// Right after the attention kernel on the same stream.
// `blocks`: that one had. `items`: expected of all sequences; more of them take longer, but are taken.
void merge_mla_pieces(const MlaDecodeParams& params, std::int64_t items, int blocks,
                      cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_decode
