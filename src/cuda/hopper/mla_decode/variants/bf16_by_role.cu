// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_decode/by_role/kernel.cuh"
#include "cuda/hopper/mla_decode/launch_attend.h"
#include "cuda/hopper/mla_decode/variants.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

void launch_by_role(const MlaDecodeParams& params, unsigned blocks, cudaStream_t stream) {
  static_assert(sizeof(ByRoleShared) <= 227 * 1024);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.split.blocks) * blocks),
                          .block = dim3(ByRole::kThreads),
                          .cluster = blocks,
                          .shared_bytes = sizeof(ByRoleShared)};
  launch(mla_decode_by_role_kernel, shape, stream, params);
}

}  // namespace

template <>
void launch_mla_attend<MlaDecodeBf16R64>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_by_role(params, MlaDecodeBf16R64::kConfig.row_groups, stream);
}
template <>
void launch_mla_attend<MlaDecodeBf16R128>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_by_role(params, MlaDecodeBf16R128::kConfig.row_groups, stream);
}

}  // namespace quire::cuda::hopper
