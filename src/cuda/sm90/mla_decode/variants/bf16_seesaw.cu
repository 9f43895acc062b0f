// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_decode/launch_attend.h"
#include "cuda/sm90/mla_decode/seesaw/kernel.cuh"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

template <typename Variant> void launch_seesaw(const MlaDecodeParams& params, cudaStream_t stream) {
  static_assert(sizeof(SeesawShared) <= 227 * 1024);
  static_assert(Variant::kRows == Variant::kCluster * Seesaw::kRows);
  // Four blocks are two clusters: clusters of four would leave 12 multiprocessors idle.
  constexpr unsigned kTogether = Variant::kCluster > 1 ? 2 : 1;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.split.blocks * Variant::kCluster)),
      .block = dim3(Seesaw::kThreads),
      .cluster = kTogether,
      .shared_bytes = sizeof(SeesawShared)};
  launch(mla_decode_seesaw_kernel, shape, stream, params);
}

}  // namespace

template <>
void launch_mla_attend<MlaDecodeBf16R64>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_seesaw<MlaDecodeBf16R64>(params, stream);
}
template <>
void launch_mla_attend<MlaDecodeBf16R128>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_seesaw<MlaDecodeBf16R128>(params, stream);
}
template <>
void launch_mla_attend<MlaDecodeBf16R256>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_seesaw<MlaDecodeBf16R256>(params, stream);
}

}  // namespace quire::cuda::sm90::mla_decode
