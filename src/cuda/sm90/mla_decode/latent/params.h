// SPDX-License-Identifier: Apache-2.0
// What the consumers receive: plain values, made on the host.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/mask/visible_range.h"

namespace quire::cuda::sm90::mla_decode {

struct LatentQueries {
  const std::byte* data = nullptr;  // [tokens, heads, 576] bf16, rows on multiples of 16 bytes
  std::int64_t token_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;
};

struct LatentOutputs {
  std::byte* out = nullptr;  // [tokens, heads, 512] bf16, rows on multiples of 16 bytes
  std::int64_t token_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;
  float* lse = nullptr;  // [tokens, heads], or null
  std::int64_t lse_token_stride = 0;
  std::int64_t lse_head_stride = 0;
  const float* sinks = nullptr;  // [heads], or null
  std::int64_t sinks_stride = 0;
};

// Of an item: how many pieces it has, and whose the first is.
struct PieceNote {
  int pieces;
  int first_cluster;
};

// Pieces of items that several clusters share: sums relative to exp2(max), not divided.
struct LatentPieces {
  float* sums = nullptr;    // [slots, rows, 512]
  float2* stats = nullptr;  // [slots, rows] (max in powers of two, sum of weights)
  int rows = 0;
  PieceNote* notes = nullptr;  // [items], or null
};

struct LatentParams {
  LatentQueries queries{};
  int heads = 0;         // row r of an item: head r % heads of its token r / heads
  float to_log2 = 0.0F;  // scale · log2(e), positive
  VisibleRange visible{};
  LatentOutputs outputs{};
  LatentPieces pieces{};
};

}  // namespace quire::cuda::sm90::mla_decode
