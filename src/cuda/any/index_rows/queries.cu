// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/index_rows/quantize_queries.cuh"

namespace quire::cuda::any::index_rows {

void launch_vectors(const IndexRowParams& params, const QueryTarget& target,
                    const IndexRowLaunch& launched) {
  if (params.x_dtype == DType::bf16 && params.columns == 128 && params.freqs != nullptr) {
    return launch_usual_queries(params, target, launched);
  }
  if (params.x_dtype == DType::bf16) {
    return launch_queries_of_type<DType::bf16>(params, target, launched);
  }
  if (params.x_dtype == DType::f16) {
    return launch_queries_of_type<DType::f16>(params, target, launched);
  }
  launch_queries_of_type<DType::f32>(params, target, launched);
}

}  // namespace quire::cuda::any::index_rows
