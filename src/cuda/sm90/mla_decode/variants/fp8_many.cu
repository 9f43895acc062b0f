// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_decode/launch_attend.h"
#include "cuda/sm90/mla_decode/many_rows/kernel.cuh"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

template <typename Variant>
void launch_many_rows(const MlaDecodeParams& params, cudaStream_t stream) {
  using Shared = ManyRowsShared<Variant::kConfig>;
  static_assert(sizeof(Shared) <= 227 * 1024);
  static_assert(Variant::kRows == Variant::kCluster * Variant::kConfig.rows);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.split.blocks * Variant::kCluster)),
      .block = dim3(ManyRows::kThreads),
      .cluster = Variant::kCluster,
      .shared_bytes = sizeof(Shared)};
  launch(params.format.has_fp8_rope ? mla_decode_many_rows_kernel<Variant, DType::fp8_e4m3>
                                    : mla_decode_many_rows_kernel<Variant, DType::bf16>,
         shape, stream, params);
}

}  // namespace

template <>
void launch_mla_attend<MlaDecodeFp8R64>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_many_rows<MlaDecodeFp8R64>(params, stream);
}
template <>
void launch_mla_attend<MlaDecodeFp8R128>(const MlaDecodeParams& params, cudaStream_t stream) {
  launch_many_rows<MlaDecodeFp8R128>(params, stream);
}

}  // namespace quire::cuda::sm90::mla_decode
