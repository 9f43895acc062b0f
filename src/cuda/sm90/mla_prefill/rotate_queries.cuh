// SPDX-License-Identifier: Apache-2.0
// q's rope columns rotated in place by warps that have nothing else to do: memory's work, done while
// the gather waits for it or the tensor cores have theirs. A warp takes a token's heads 32 at a time,
// eight columns a lane: with 16 the warps waited for memory longer than the projection's products took.
#pragma once

#include "cuda/common/mla/finish_row.cuh"
#include "cuda/common/rows/load_once.cuh"
#include "cuda/common/rows/rope_angles.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/sm90/mla_prefill/params.h"

namespace quire::cuda::sm90::mla_prefill {

template <DType kDType> class QueryRotator {
 public:
  // Of all workers of the grid.
  __device__ QueryRotator(const QueryRotation& params, int worker, int workers)
      : params_(params), worker_(worker), workers_(workers) {}

  __device__ void run() const {
    const int groups = (params_.heads + kHeads - 1) / kHeads;
    for (int token = params_.first_token + worker_; token < params_.tokens; token += workers_) {
      const TokenPlace place =
          place_of_token(params_.row_offsets, params_.cache_lengths, params_.batch, token);
      if (!place.exists()) return;
      float angles[kVec8];
      load_angles(params_.angles, place.position, kVec8 * (lane() % kLanes), angles);
      fetch_angles(place.position + workers_);
      for (int group = 0; group < groups; ++group) {
        fetch_ahead(token, group + kAhead, groups);
        rotate_heads(token, group * kHeads, angles);
      }
    }
  }

 private:
  static constexpr int kLanes = 8;  // of a row's 64 columns
  static constexpr int kRows = 32 / kLanes;
  static constexpr int kSteps = 8;
  static constexpr int kHeads = kRows * kSteps;
  static constexpr int kAhead = 2;  // groups whose rows are on their way to L2

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ std::byte* head_at(std::int64_t token, int head) const {
    return params_.q + token * params_.token_bytes + head * params_.head_bytes;
  }

  // Of the worker's next token, if it is of the same sequence.
  __device__ void fetch_angles(std::int64_t position) const {
    const LatentAngles& angles = params_.angles;
    if (position >= angles.max_pos) return;
    const std::int64_t at = position * angles.row_stride + kVec8 * (lane() % kLanes);
    prefetch_line(angles.freqs + bytes_of(angles.dtype) * at);
  }
  __device__ static int bytes_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

  // Registers would hold far less than memory's latency asks for.
  __device__ void fetch_ahead(int token, int group, int groups) const {
    for (; group >= groups; group -= groups) token += workers_;
    const int head = group * kHeads + lane();
    if (token >= params_.tokens || lane() >= kHeads || head >= params_.heads) return;
    prefetch_line(head_at(token, head));
  }

  __device__ void rotate_heads(int token, int first, const float (&angles)[kVec8]) const {
    const int head = first + lane() / kLanes;
    std::byte* at = head_at(token, head) + lane() % kLanes * sizeof(uint4);
    uint4 raw[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (head + s * kRows < params_.heads) {
        raw[s] = Vec8<kDType>::load(at + s * kRows * params_.head_bytes);
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (head + s * kRows >= params_.heads) continue;
      float values[kVec8];
      Vec8<kDType>::decode(raw[s], values);
#pragma unroll
      for (int j = 0; j < kVec8; j += 2) {
        rotate_pair(values[j], values[j + 1], angles[j], angles[j + 1]);
      }
      store_vec8<kDType>(at + s * kRows * params_.head_bytes, values);
    }
  }

  const QueryRotation& params_;
  int worker_;
  int workers_;
};

}  // namespace quire::cuda::sm90::mla_prefill
