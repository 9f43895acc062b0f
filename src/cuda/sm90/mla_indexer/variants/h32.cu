// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/kernel.cuh"
#include "cuda/sm90/mla_indexer/variants.h"

namespace quire::cuda::sm90::mla_indexer {

template void launch_index<IndexOne<32, 128>>(const IndexParams&, cudaStream_t);
template void launch_index<IndexTwo<32, 128>>(const IndexParams&, cudaStream_t);
template void launch_index<IndexOne<32, 64>>(const IndexParams&, cudaStream_t);
template void launch_index<IndexTwo<32, 64>>(const IndexParams&, cudaStream_t);

}  // namespace quire::cuda::sm90::mla_indexer
