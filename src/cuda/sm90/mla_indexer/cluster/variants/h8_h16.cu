// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/cluster/kernel.cuh"

namespace quire::cuda::sm90::mla_indexer {

template void launch_index_cluster<IndexRow<8, 128>>(const IndexParams&, const ClusterShape&,
                                                     cudaStream_t);
template void launch_index_cluster<IndexRow<8, 64>>(const IndexParams&, const ClusterShape&,
                                                    cudaStream_t);
template void launch_index_cluster<IndexRow<16, 128>>(const IndexParams&, const ClusterShape&,
                                                      cudaStream_t);
template void launch_index_cluster<IndexRow<16, 64>>(const IndexParams&, const ClusterShape&,
                                                     cudaStream_t);

}  // namespace quire::cuda::sm90::mla_indexer
