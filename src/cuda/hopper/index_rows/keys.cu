// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/index_rows/vectors.cuh"

namespace quire::cuda::hopper {

void launch_vectors(const IndexRowParams& params, const KeyTarget& target,
                    const IndexRowLaunch& launched) {
  launch_rows(params, target, launched);
}

}  // namespace quire::cuda::hopper
