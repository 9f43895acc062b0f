// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/index_rows/store_keys.cuh"

namespace quire::cuda::any::index_rows {

void launch_vectors(const IndexRowParams& params, const KeyTarget& target,
                    const IndexRowLaunch& launched) {
  if (are_usual_keys(params, target)) return launch_usual_keys(params, target, launched);
  if (params.x_dtype == DType::bf16) {
    return launch_keys_of_type<DType::bf16>(params, target, launched);
  }
  if (params.x_dtype == DType::f16)
    return launch_keys_of_type<DType::f16>(params, target, launched);
  launch_keys_of_type<DType::f32>(params, target, launched);
}

}  // namespace quire::cuda::any::index_rows
