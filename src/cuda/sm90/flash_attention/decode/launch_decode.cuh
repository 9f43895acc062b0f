// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/flash_attention/decode/kernel.cuh"
#include "cuda/sm90/flash_attention/decode/launch_decode.h"

namespace quire::cuda::sm90::flash_attention {

template <typename Variant> void launch_decode(const DecodeParams& params, cudaStream_t stream) {
  static_assert(sizeof(DecodeShared<Variant::kConfig>) <= 227 * 1024);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.split.blocks << params.lines.bits)),
      .block = dim3(DecodeConfig::kThreads + DecodeConfig::kLoadThreads),
      .shared_bytes = sizeof(DecodeShared<Variant::kConfig>)};
  launch(decode_kernel<Variant>, shape, stream, params);
}

}  // namespace quire::cuda::sm90::flash_attention
