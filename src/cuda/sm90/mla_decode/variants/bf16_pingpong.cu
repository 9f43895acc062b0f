// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/pingpong/kernel.cuh"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

template <typename Variant>
void launch_pingpong(const MlaDecodeParams& params, cudaStream_t stream) {
  static_assert(sizeof(PingpongShared) <= 227 * 1024);
  static_assert(Variant::kRows == Variant::kCluster * Pingpong::kRows);
  // Four blocks are two clusters: clusters of four would leave 12 multiprocessors idle.
  constexpr unsigned kTogether = Variant::kCluster > 1 ? 2 : 1;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.split.blocks * Variant::kCluster)),
      .block = dim3(Pingpong::kThreads),
      .cluster = kTogether,
      .shared_bytes = sizeof(PingpongShared)};
  launch(mla_decode_pingpong_kernel, shape, stream, params);
}

}  // namespace

template <>
void launch_mla_attend<MlaDecodeBf16R64>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_pingpong<MlaDecodeBf16R64>(params, stream);
}
template <>
void launch_mla_attend<MlaDecodeBf16R128>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_pingpong<MlaDecodeBf16R128>(params, stream);
}
template <>
void launch_mla_attend<MlaDecodeBf16R256>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_pingpong<MlaDecodeBf16R256>(params, stream);
}

}  // namespace quire::cuda::sm90::mla_decode
