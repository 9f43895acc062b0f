// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/sparse_mla/params.h"

namespace quire::cuda::sm90::sparse_mla {

// The pieces of a token's tiles become rows of the output, in their order. Nothing without pieces.
void merge_sparse_pieces(const SparseParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::sparse_mla
