// SPDX-License-Identifier: Apache-2.0
// The rows that no thread block scored alone: those merged from several pieces, and those that see no
// more than top_k keys.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/hopper/mla_indexer/params.h"

namespace quire::cuda::hopper {

// How rows are merged.
enum class MergeShape : std::uint8_t {
  few_rows,   // of many pieces: up to eight thread blocks to a row
  many_rows,  // of few pieces: several rows to an SM
};

struct FinishLaunch {
  MergeShape shape = MergeShape::many_rows;
  int merges = 0;   // blocks of tokens that may have been cut, at most
  int cluster = 1;  // thread blocks to a row
  cudaStream_t stream = nullptr;
};

void launch_finish(const IndexParams& params, const FinishLaunch& launch);

}  // namespace quire::cuda::hopper
