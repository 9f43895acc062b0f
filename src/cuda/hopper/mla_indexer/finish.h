// SPDX-License-Identifier: Apache-2.0
// The rows that no thread block scored alone: those merged from several pieces, and those that see no
// more than top_k keys.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/hopper/mla_indexer/params.h"

namespace quire::cuda::hopper {

struct FinishLaunch {
  int merges = 0;   // blocks of tokens that may have been cut, at most
  int cluster = 1;  // thread blocks to a row
  cudaStream_t stream = nullptr;
};

void launch_finish(const IndexParams& params, const FinishLaunch& launch);

}  // namespace quire::cuda::hopper
