// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/mla/finish_rows.h"

namespace quire::cuda::sm90::mla_prefill {

// Rope columns of q that a kernel rotates on the side, in place: of tokens first_token … tokens - 1.
struct QueryRotation {
  std::byte* q = nullptr;  // [tokens, heads, 64], the first rope column; null: nothing to rotate
  std::int64_t token_bytes = 0;
  std::int64_t head_bytes = 0;
  int first_token = 0;
  int tokens = 0;
  int heads = 0;
  const std::uint32_t* row_offsets = nullptr;    // [batch + 1]
  const std::uint32_t* cache_lengths = nullptr;  // [batch]
  std::int64_t batch = 0;
  LatentAngles angles;
};

}  // namespace quire::cuda::sm90::mla_prefill
