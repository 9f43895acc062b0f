// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/index_rows/vectors.cuh"

namespace quire::cuda::hopper {

void launch_vectors(const IndexRowParams& params, const QueryTarget& target, cudaStream_t stream) {
  launch_rows(params, target, stream);
}

}  // namespace quire::cuda::hopper
