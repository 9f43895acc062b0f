// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_decode/launch_attend.h"
#include "cuda/hopper/mla_decode/many_rows/kernel.cuh"
#include "cuda/hopper/mla_decode/variants.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <>
void launch_mla_attend<MlaDecodeBf16ManyRows>(const MlaDecodeParams& params, cudaStream_t stream) {
  static_assert(sizeof(ManyRowsShared) <= 227 * 1024);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.split.blocks * ManyRows::kCluster)),
      .block = dim3(ManyRows::kThreads),
      .cluster = ManyRows::kCluster,
      .shared_bytes = sizeof(ManyRowsShared)};
  launch(mla_decode_many_rows_kernel, shape, stream, params);
}

}  // namespace quire::cuda::hopper
