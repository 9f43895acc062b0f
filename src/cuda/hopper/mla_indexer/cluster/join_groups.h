// SPDX-License-Identifier: Apache-2.0
// The best of each row out of the lists of its groups.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/hopper/mla_indexer/cluster/params.h"
#include "cuda/hopper/mla_indexer/params.h"

namespace quire::cuda::hopper {

// writers: thread blocks of a row.
void launch_join_groups(const IndexParams& params, const GroupLists& lists, int writers,
                        cudaStream_t stream);

}  // namespace quire::cuda::hopper
