// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_decode/fp8_wgmma/kernel.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

template <typename Variant>
void launch_fp8_wgmma(const MlaDecodeParams& params, cudaStream_t stream) {
  using Shared = Fp8WgmmaShared<Variant::kConfig>;
  static_assert(sizeof(Shared) <= 227 * 1024);
  static_assert(Variant::kRows == Variant::kCluster * Variant::kConfig.rows);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.split.blocks * Variant::kCluster)),
      .block = dim3(Fp8Wgmma::kThreads),
      .cluster = Variant::kCluster,
      .shared_bytes = sizeof(Shared)};
  launch(params.format.has_fp8_rope ? mla_decode_fp8_wgmma_kernel<Variant, DType::fp8_e4m3>
                                    : mla_decode_fp8_wgmma_kernel<Variant, DType::bf16>,
         shape, stream, params);
}

}  // namespace

template <>
void launch_mla_attend<MlaDecodeFp8R64>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_fp8_wgmma<MlaDecodeFp8R64>(params, stream);
}
template <>
void launch_mla_attend<MlaDecodeFp8R128>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_fp8_wgmma<MlaDecodeFp8R128>(params, stream);
}

}  // namespace quire::cuda::sm90::mla_decode
