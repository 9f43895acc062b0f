// SPDX-License-Identifier: Apache-2.0
// As gather_rows, for caches whose rows are plain numbers of q's dtype: new ones are finished too.
#pragma once

#include "cuda/common/mla/finish_plain.h"
#include "cuda/sm90/mla_prefill/params.h"
#include "cuda/sm90/mla_prefill/query_rotation.h"

namespace quire::cuda::sm90::mla_prefill {

// A lane holds its part of a row.
inline constexpr std::int32_t kMostPlainLatents = 512;

struct GatherPlainParams {
  GatherRowsParams gather;
  LatentRowFinish new_rows{};     // what is to be done to rows of new tokens
  const std::byte* kv = nullptr;  // [tokens, width], those rows, raw; null: in the cache
  std::int64_t kv_token_bytes = 0;
  QueryRotation rotation{};  // done by thread blocks of their own
  int rotating_blocks = 0;
};

void launch_gather_plain(const GatherPlainParams& params, cudaStream_t stream);

}  // namespace quire::cuda::sm90::mla_prefill
