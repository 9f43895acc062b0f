// SPDX-License-Identifier: Apache-2.0
// Three warps that have nothing to load or to multiply rotate q's rope columns in place: memory's
// work, done while the tensor cores have theirs. A warp takes a token's heads 32 at a time, eight
// columns a lane: with 16 the warps waited for memory longer than the products took.
#pragma once

#include "cuda/hopper/mla_prefill/stationary/params.h"
#include "cuda/hopper/rope/angles.cuh"
#include "cuda/rows/any_eight.cuh"

namespace quire::cuda::hopper {

template <DType kDType> class QueryRotator {
 public:
  // Of all workers of the grid.
  __device__ QueryRotator(const QueryRotation& params, int worker, int workers)
      : params_(params), worker_(worker), workers_(workers) {}

  __device__ void run() const {
    const int groups = (params_.heads + kHeads - 1) / kHeads;
    for (int token = worker_; token < params_.tokens; token += workers_) {
      const TokenPlace place =
          place_of_token(params_.row_offsets, params_.cache_lengths, params_.batch, token);
      if (!place.exists()) return;
      float cosines[kPairs];
      float sines[kPairs];
      load_angles(place.position, cosines, sines);
      fetch_angles(place.position + workers_);
      for (int group = 0; group < groups; ++group) {
        fetch_ahead(token, group + kAhead, groups);
        rotate_heads(token, group * kHeads, cosines, sines);
      }
    }
  }

 private:
  static constexpr int kPairs = kEight / 2;
  static constexpr int kLanes = 8;  // of a row's 64 columns
  static constexpr int kRows = 32 / kLanes;
  static constexpr int kSteps = 8;
  static constexpr int kHeads = kRows * kSteps;
  static constexpr int kAhead = 2;  // groups whose rows are on their way to L2

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ std::byte* head_at(std::int64_t token, int head) const {
    return params_.q + token * params_.token_bytes + head * params_.head_bytes;
  }

  // A position past the table is the caller's mistake; it is not followed out of it.
  __device__ void load_angles(std::int64_t position, float (&cosines)[kPairs],
                              float (&sines)[kPairs]) const {
    const LatentAngles& angles = params_.angles;
    const std::int64_t row = position < angles.max_pos ? position : angles.max_pos - 1;
    const std::int64_t at = row * angles.row_stride + kEight * (lane() % kLanes);
    float values[kEight];
    if (angles.dtype == DType::f32) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) values[i] = load_one(angles.freqs, DType::f32, at + i);
    } else {
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        const float low = load_one(angles.freqs, DType::bf16, at + i);
        const float half = load_one(angles.freqs, DType::f16, at + i);
        values[i] = angles.dtype == DType::bf16 ? low : half;
      }
    }
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      cosines[j] = values[2 * j];
      sines[j] = values[2 * j + 1];
    }
  }

  // Of the worker's next token, if it is of the same sequence.
  __device__ void fetch_angles(std::int64_t position) const {
    const LatentAngles& angles = params_.angles;
    if (position >= angles.max_pos) return;
    const std::int64_t at = position * angles.row_stride + kEight * (lane() % kLanes);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(angles.freqs + bytes_of(angles.dtype) * at));
  }
  __device__ static int bytes_of(DType dtype) {
    return dtype == DType::f32 ? 4 : 2;
  }

  // Registers would hold far less than memory's latency asks for.
  __device__ void fetch_ahead(int token, int group, int groups) const {
    for (; group >= groups; group -= groups) token += workers_;
    const int head = group * kHeads + lane();
    if (token >= params_.tokens || lane() >= kHeads || head >= params_.heads) return;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(head_at(token, head)));
  }

  __device__ void rotate_heads(int token, int first, const float (&cosines)[kPairs],
                               const float (&sines)[kPairs]) const {
    const int head = first + lane() / kLanes;
    std::byte* at = head_at(token, head) + lane() % kLanes * sizeof(uint4);
    uint4 raw[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (head + s * kRows < params_.heads) {
        raw[s] = Eight<kDType>::load(at + s * kRows * params_.head_bytes);
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (head + s * kRows >= params_.heads) continue;
      float values[kEight];
      Eight<kDType>::decode(raw[s], values);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        rotate_pair(values[2 * j], values[2 * j + 1], cosines[j], sines[j]);
      }
      store_eight<kDType>(at + s * kRows * params_.head_bytes, values);
    }
  }

  const QueryRotation& params_;
  int worker_;
  int workers_;
};

}  // namespace quire::cuda::hopper
