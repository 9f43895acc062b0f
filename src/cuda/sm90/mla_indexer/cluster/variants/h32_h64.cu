// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/cluster/kernel.cuh"

namespace quire::cuda::sm90::mla_indexer {

template void launch_index_cluster<IndexRow<32, 128>>(const IndexParams&, const ClusterShape&,
                                                      cudaStream_t);
template void launch_index_cluster<IndexRow<32, 64>>(const IndexParams&, const ClusterShape&,
                                                     cudaStream_t);
template void launch_index_cluster<IndexRow<64, 128>>(const IndexParams&, const ClusterShape&,
                                                      cudaStream_t);
template void launch_index_cluster<IndexRow<64, 64>>(const IndexParams&, const ClusterShape&,
                                                     cudaStream_t);

}  // namespace quire::cuda::sm90::mla_indexer
