// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/group/kernel.cuh"

namespace quire::cuda::sm90::mla_indexer {

template void launch_index_group<IndexGroup<32, 128>>(const IndexParams&, const GroupBoard&,
                                                      const GroupShape&, cudaStream_t);
template void launch_index_group<IndexGroup<32, 64>>(const IndexParams&, const GroupBoard&,
                                                     const GroupShape&, cudaStream_t);
template void launch_index_group<IndexGroup<64, 128>>(const IndexParams&, const GroupBoard&,
                                                      const GroupShape&, cudaStream_t);
template void launch_index_group<IndexGroup<64, 64>>(const IndexParams&, const GroupBoard&,
                                                     const GroupShape&, cudaStream_t);

}  // namespace quire::cuda::sm90::mla_indexer
