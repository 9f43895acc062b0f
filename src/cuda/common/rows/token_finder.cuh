// SPDX-License-Identifier: Apache-2.0
// The places of many tokens at once, one per lane. The offsets and lengths of up to 32 sequences are loaded in
// one step and searched by shuffles: two loads follow each other (offsets, page table) where a lane that
// searches alone waits for five or more.
#pragma once

#include "cuda/common/rows/token_place.cuh"

namespace quire::cuda {

// All lanes of a warp make one, and find together.
class TokenFinder {
 public:
  __device__ TokenFinder(const std::uint32_t* row_offsets, const std::uint32_t* cache_lengths,
                         std::int64_t batch)
      : row_offsets_(row_offsets),
        cache_lengths_(cache_lengths),
        batch_(static_cast<int>(batch)),
        stride_((batch_ + kLanes - 1) / kLanes) {
    const int sample = static_cast<int>(threadIdx.x % kLanes) * stride_;
    if (sample < batch_) {
      offset_ = row_offsets[sample];
      length_ = cache_lengths[sample];
    }
    num_tokens_ = batch_ == 0 ? 0 : row_offsets[batch_];
  }

  __device__ std::int64_t num_tokens() const { return num_tokens_; }

  // Each lane its own token.
  __device__ TokenPlace find(std::int64_t token) const {
    int low = 0;
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) {
      const std::uint32_t offset = __shfl_sync(kAll, offset_, low + step);
      if (offset <= token) low += step;
    }
    const std::uint32_t offset = __shfl_sync(kAll, offset_, low);
    const std::uint32_t length = __shfl_sync(kAll, length_, low);
    if (token >= num_tokens_) return {};
    if (stride_ > 1) return find_from(low * stride_, token);
    return {.sequence = low, .position = length + (token - offset)};
  }

 private:
  static constexpr int kLanes = 32;
  static constexpr unsigned kAll = 0xffffffffu;

  // The sample's sequence or one of those before the next sample.
  __device__ TokenPlace find_from(int first, std::int64_t token) const {
    const int count = min(stride_, batch_ - first);
    const int sequence =
        first + sequence_of(row_offsets_ + first, count, static_cast<std::uint32_t>(token));
    return {.sequence = sequence,
            .position = cache_lengths_[sequence] + (token - row_offsets_[sequence])};
  }

  const std::uint32_t* row_offsets_;
  const std::uint32_t* cache_lengths_;
  int batch_;
  int stride_;  // sequences from lane to lane
  std::uint32_t offset_ =
      0xffffffff;  // of the lane's sequence; past every token where there is none
  std::uint32_t length_ = 0;
  std::int64_t num_tokens_;
};

}  // namespace quire::cuda
