// SPDX-License-Identifier: Apache-2.0
// The work of one warp: chunks of heads. The places of the tokens of 32 of them are found at
// once, a lane each, and handed out as the warp comes to them.
#pragma once

#include "cuda/any/rope/params.h"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/rows/rope_angles.cuh"

namespace quire::cuda::any::rope {

// Chunks of heads of all tokens, fewer than 2^31, dealt to the warps of a grid in turn: what the card reads at a
// time is one run of memory.
struct ChunkShare {
  Divisor per_token;
  int chunks;
};

// What is known of a token before its page id is there: that is read beside the angles, not before them.
struct RopeToken {
  std::int64_t angles = -1;  // as token_angles() says; -1: the token is nobody's
  PageSlot keys = kNowhere;
};

class TokenWalk {
 public:
  __device__ TokenWalk(const RopeParams& params, const ChunkShare& share)
      : params_(params),
        share_(share),
        finder_(params.row_offsets, params.key.cache_lengths, params.key.batch) {
    if (threadIdx.x < kLanes && params.key_heads > 0) {
      prefetch_ids(params.key, static_cast<int>(threadIdx.x));
    }
    warps_ = static_cast<int>(gridDim.x * (blockDim.x / kLanes));
    at_ = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kLanes) - warps_;
  }

  __device__ bool advance() {
    at_ += warps_;
    ++used_;
    return at_ < share_.chunks;
  }
  __device__ std::int64_t token() const { return token_of(at_); }
  __device__ int chunk() const {
    return at_ - token_of(at_) * static_cast<int>(share_.per_token.value());
  }

  // Of the token at hand, as token_angles() says; -1: it is nobody's. All lanes of the warp ask together, this first.
  __device__ std::int64_t angles() {
    if (used_ >= kLanes) find();
    return __shfl_sync(kAll, static_cast<long long>(found_.angles), used_);
  }
  // Its key row of head 0, null: nowhere. After angles(), between which and this the page id is on its way.
  __device__ std::byte* keys() {
    if (used_ == 0) keys_ = row_in_slot(params_.key, found_.keys);
    const auto keys = __shfl_sync(kAll, reinterpret_cast<unsigned long long>(keys_), used_);
    auto* row = reinterpret_cast<std::byte*>(keys);
    __builtin_assume(__isGlobal(row));
    return row;
  }

 private:
  static constexpr int kLanes = 32;
  static constexpr unsigned kAll = 0xffffffffu;

  __device__ int token_of(int chunk) const {
    return static_cast<int>(share_.per_token.quotient(static_cast<unsigned>(chunk)));
  }

  // For the chunk at hand and the 31 that follow.
  __device__ void find() {
    used_ = 0;
    const std::int64_t own = at_ + std::int64_t{threadIdx.x % kLanes} * warps_;
    const int token = own < share_.chunks ? token_of(static_cast<int>(own)) : 0;
    const TokenPlace place = finder_.find(token);
    found_ = {};
    if (!place.exists()) return;
    found_.angles = token_angles(params_.angles, token, place.position);
    if (params_.key_heads > 0) found_.keys = slot_of(params_.key, place);
  }

  const RopeParams& params_;
  const ChunkShare& share_;
  TokenFinder finder_;
  int warps_;
  int at_;                 // the chunk at hand
  int used_ = kLanes - 1;  // the lane that knows its place; kLanes: none
  RopeToken found_;
  std::byte* keys_ = nullptr;
};

}  // namespace quire::cuda::any::rope
