// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_decode/by_role/kernel.cuh"
#include "cuda/hopper/mla_decode/launch_attend.h"
#include "cuda/hopper/mla_decode/variants.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

template <typename Variant>
void launch_by_role(const MlaDecodeParams& params, cudaStream_t stream) {
  static_assert(sizeof(ByRoleShared) <= 227 * 1024);
  static_assert(Variant::kRows == Variant::kCluster * ByRole::kRows);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.split.blocks * Variant::kCluster)),
      .block = dim3(ByRole::kThreads),
      .cluster = Variant::kCluster,
      .shared_bytes = sizeof(ByRoleShared)};
  launch(mla_decode_by_role_kernel, shape, stream, params);
}

}  // namespace

template <>
void launch_mla_attend<MlaDecodeBf16R64>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_by_role<MlaDecodeBf16R64>(params, stream);
}
template <>
void launch_mla_attend<MlaDecodeBf16R128>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_by_role<MlaDecodeBf16R128>(params, stream);
}

}  // namespace quire::cuda::hopper
