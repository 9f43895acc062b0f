// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/sparse_mla/config.h"
#include "cuda/sm90/sparse_mla/params.h"

namespace quire::cuda::sm90::sparse_mla {

// One definition for each variant, in its own file.
template <typename Variant>
void launch_sparse_tiles(const SparseParams& params, int blocks, cudaStream_t stream);

}  // namespace quire::cuda::sm90::sparse_mla
