// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/group/kernel.cuh"

namespace quire::cuda::sm90::mla_indexer {

template void launch_index_group<IndexGroup<8, 128>>(const IndexParams&, const GroupBoard&,
                                                     const GroupShape&, cudaStream_t);
template void launch_index_group<IndexGroup<8, 64>>(const IndexParams&, const GroupBoard&,
                                                    const GroupShape&, cudaStream_t);
template void launch_index_group<IndexGroup<16, 128>>(const IndexParams&, const GroupBoard&,
                                                      const GroupShape&, cudaStream_t);
template void launch_index_group<IndexGroup<16, 64>>(const IndexParams&, const GroupBoard&,
                                                     const GroupShape&, cudaStream_t);

}  // namespace quire::cuda::sm90::mla_indexer
