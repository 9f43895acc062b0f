// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/sparse_mla/kernel.cuh"
#include "cuda/sm90/sparse_mla/variants.h"

namespace quire::cuda::sm90::sparse_mla {

template void launch_sparse_tiles<SparseBf16>(const SparseParams&, int, cudaStream_t);

}  // namespace quire::cuda::sm90::sparse_mla
