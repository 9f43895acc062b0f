// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/sparse_mla/fp8/kernel.cuh"
#include "cuda/sm90/sparse_mla/variants.h"

namespace quire::cuda::sm90::sparse_mla {

template void launch_sparse_fp8<SparseFp8Heads16>(const SparseParams&, int, cudaStream_t);
template void launch_sparse_fp8<SparseFp8Heads32>(const SparseParams&, int, cudaStream_t);

}  // namespace quire::cuda::sm90::sparse_mla
