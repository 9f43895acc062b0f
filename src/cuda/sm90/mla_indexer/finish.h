// SPDX-License-Identifier: Apache-2.0
// The rows that no thread block scored alone: those merged from several pieces, and those that see no
// more than top_k keys.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm90/mla_indexer/params.h"

namespace quire::cuda::sm90::mla_indexer {

// merges: blocks of tokens that may have been cut, at most.
void launch_finish(const IndexParams& params, int merges, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_indexer
