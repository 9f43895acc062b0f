// SPDX-License-Identifier: Apache-2.0
// As gather_rows, for caches whose rows are plain numbers of q's dtype: new ones are finished too.
#pragma once

#include "cuda/hopper/latent/finish_plain.h"
#include "cuda/hopper/mla_prefill/params.h"
#include "cuda/hopper/mla_prefill/query_rotation.h"

namespace quire::cuda::hopper {

// A lane holds its part of a row.
inline constexpr std::int32_t kMostPlainLatents = 512;

struct GatherPlainParams {
  KvLayerView view{};
  const std::uint32_t* row_offsets = nullptr;
  ChunkTable chunks;
  std::int64_t chunk = 0;
  std::int64_t rows = 0;         // of the buffer
  std::int32_t latent = 0;       // a multiple of 8
  std::int32_t rope = 0;         // a multiple of 8
  std::byte* latents = nullptr;  // [rows, latent], of the cache's dtype or, with scales, e4m3
  float* scales = nullptr;       // [rows, scale_stride], one per 128 latents, or null
  std::int64_t scale_stride = 0;
  std::byte* rope_rows = nullptr;  // [rows, rope]
  DType rope_dtype = DType::bf16;  // the cache's, or e4m3
  SpanParams spans{};              // none without a batch
  RowFinish new_rows{};            // what is to be done to rows of new tokens
  const std::byte* kv = nullptr;   // [tokens, width], those rows, raw; null: in the cache
  std::int64_t kv_token_bytes = 0;
  QueryRotation rotation{};  // done by thread blocks of their own
  int rotating_blocks = 0;
  bool follows_kernel = true;  // of this call, whose end it waits for itself
};

void launch_gather_plain(const GatherPlainParams& params, cudaStream_t stream);

}  // namespace quire::cuda::hopper
