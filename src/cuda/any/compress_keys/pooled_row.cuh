// SPDX-License-Identifier: Apache-2.0
// The gated softmax over the tokens of a row's window, column by column, by a CTA.
//
// A thread holds eight columns of some tokens: 64 neighbours (or as many as a row has) take the columns side by side, groups
// of them the tokens in turn. The softmax is two passes, the largest gate of all groups between them; the second finds the
// gates in L1. Which token a group takes, and the order of all sums, follows from its place in the window alone, so that a
// row is the same bits however its tokens came.
#pragma once

#include <cmath>

#include "cuda/any/compress_keys/params.h"
#include "cuda/common/rows/number.cuh"

namespace quire::cuda::any::compress_keys {

// A sequence of the batch. slot -1: one that the state does not have.
struct SequenceTokens {
  int sequence;
  std::int64_t first_token;  // its row of kv
  std::int64_t cached;
  std::int64_t end;
  std::int64_t slot;

  __device__ SequenceTokens(const CompressParams& params, int number) : sequence(number) {
    first_token = params.row_offsets[number];
    cached = params.rows.cache_lengths[number];
    end = cached + params.row_offsets[number + 1] - first_token;
    slot = params.state_slots == nullptr ? number : std::int64_t{params.state_slots[number]};
    if (slot >= params.state.slots) slot = -1;
  }
};

// How numbers are read: aligned vectors of eight, or one by one.
enum class NumberLoads : std::uint8_t { vec8, single };

struct EightNumbers {
  float at[kVec8];
};

// A function of its own: one copy of it is enough.
static __device__ __noinline__ EightNumbers load_singly(const std::byte* row, DType dtype,
                                                        int column, int width) {
  EightNumbers numbers;
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    numbers.at[i] = column + i < width ? load_float(row, dtype, column + i) : 0.0f;
  }
  return numbers;
}

// Eight columns of f32, f16 or bf16; of a row that ends between them, zeros behind its end.
template <NumberLoads kLoads>
__device__ inline void load_eight(const std::byte* row, DType dtype, int column, int width,
                                  float (&values)[kVec8]) {
  if constexpr (kLoads == NumberLoads::single) {
    const EightNumbers numbers = load_singly(row, dtype, column, width);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) values[i] = numbers.at[i];
  } else if (dtype == DType::f32) {
    const std::byte* from = row + std::int64_t{column} * 4;
    Vec8<DType::f32>::decode({read_only<float4>(from), read_only<float4>(from + sizeof(float4))},
                             values);
  } else {
    const auto raw = read_only<uint4>(row + std::int64_t{column} * 2);
    if (dtype == DType::bf16) {
      Vec8<DType::bf16>::decode(raw, values);
    } else {
      Vec8<DType::f16>::decode(raw, values);
    }
  }
}

// In 32 bits wherever the position fits: a division of 64 takes as long as a load.
__device__ inline std::byte* state_row(const StateRows& state, const SequenceTokens& of,
                                       std::int64_t position, int part) {
  const std::int64_t row =
      position <= 0xffffffff && state.rows <= 0xffffffff
          ? static_cast<std::uint32_t>(position) % static_cast<std::uint32_t>(state.rows)
          : position % state.rows;
  return state.data + of.slot * state.slot_bytes + row * state.row_bytes + part * state.part_bytes;
}

// Row `entry` of a sequence, in a CTA.
template <NumberLoads kLoads> class PooledRow {
 public:
  __device__ PooledRow(const CompressParams& params, const SequenceTokens& of, std::int64_t entry)
      : params_(params),
        of_(of),
        entry_(entry),
        begin_(max((entry - params.series + 1) * params.ratio, std::int64_t{0})),
        vector_(static_cast<int>(threadIdx.x) % params.vectors),
        group_(static_cast<int>(threadIdx.x) / params.vectors),
        groups_(kThreads / params.vectors) {}

  // parts: in shared memory, of all threads.
  __device__ void write(float (*parts)[kThreads][kVec8], double* row) const {
    const int step = params_.vectors * kVec8;
    for (int first = 0; first < params_.width; first += step) pool(first, parts, row);
  }

 private:
  // Tokens of the window, from the last on: a window that is cut off at the sequence's start has the groups of a whole one.
  template <typename Body> __device__ void over_tokens(const Body& body) const {
    const std::int64_t last = (entry_ + 1) * params_.ratio - 1;
#pragma unroll 2
    for (std::int64_t token = last - group_; token >= begin_; token -= groups_) body(token);
  }

  __device__ void load_part(std::int64_t token, int part, int column,
                            float (&values)[kVec8]) const {
    const bool is_kept = token < of_.cached;
    const DenseRows& rows = params_.parts[part];
    const std::byte* row =
        is_kept ? state_row(params_.state, of_, token, part)
                : rows.data + (of_.first_token + token - of_.cached) * rows.row_bytes;
    load(row, is_kept ? params_.state.dtype : rows.dtype, token, column, values);
  }
  __device__ bool is_own(std::int64_t token) const {
    return token >= entry_ * params_.ratio;
  }
  // Columns of the token's series.
  __device__ void load(const std::byte* row, DType dtype, std::int64_t token, int column,
                       float (&values)[kVec8]) const {
    const int skipped = is_own(token) ? (params_.series - 1) * params_.width : 0;
    load_eight<kLoads>(row + std::int64_t{skipped} * (bits(dtype) / 8), dtype, column,
                       params_.width, values);
  }
  __device__ void load_scores(std::int64_t token, int column, float (&scores)[kVec8]) const {
    float bias[kVec8];
    const std::int64_t phase = token - (is_own(token) ? entry_ : entry_ - 1) * params_.ratio;
    load_part(token, 1, column, scores);
    load(params_.bias.data + phase * params_.bias.row_bytes, params_.bias.dtype, token, column,
         bias);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) scores[i] += bias[i];
  }

  __device__ void pool(int first, float (*parts)[kThreads][kVec8], double* row) const {
    const int column = first + vector_ * kVec8;
    float largest[kVec8];
    find_largest(column, parts[0], largest);
    float sums[kVec8] = {};
    float totals[kVec8] = {};
    if (column < params_.width) {
      over_tokens([&](std::int64_t token) {
        float scores[kVec8];
        float numbers[kVec8];
        load_scores(token, column, scores);
        load_part(token, 0, column, numbers);
#pragma unroll
        for (int i = 0; i < kVec8; ++i) {
          const float weight = expf(scores[i] - largest[i]);
          sums[i] += weight;
          totals[i] = fmaf(weight, numbers[i], totals[i]);
        }
      });
    }
    __syncthreads();  // all have read the largest gates
#pragma unroll
    for (int i = 0; i < kVec8; ++i) {
      parts[0][threadIdx.x][i] = sums[i];
      parts[1][threadIdx.x][i] = totals[i];
    }
    __syncthreads();
    const int columns = min(params_.width - first, params_.vectors * kVec8);
    for (int c = threadIdx.x; c < columns; c += kThreads) {
      float sum = 0.0f;
      float total = 0.0f;
      for (int group = 0; group < groups_; ++group) {
        sum += parts[0][group * params_.vectors + c / kVec8][c % kVec8];
        total += parts[1][group * params_.vectors + c / kVec8][c % kVec8];
      }
      row[first + c] = total / sum;
    }
    __syncthreads();
  }

  // Of all groups; NaN has no say: it comes back in the sum of weights.
  __device__ void find_largest(int column, float (*parts)[kVec8], float (&largest)[kVec8]) const {
#pragma unroll
    for (float& value : largest) value = -INFINITY;
    if (column < params_.width) {
      over_tokens([&](std::int64_t token) {
        float scores[kVec8];
        load_scores(token, column, scores);
#pragma unroll
        for (int i = 0; i < kVec8; ++i) largest[i] = fmaxf(largest[i], scores[i]);
      });
    }
#pragma unroll
    for (int i = 0; i < kVec8; ++i) parts[threadIdx.x][i] = largest[i];
    __syncthreads();
    for (int group = 0; group < groups_; ++group) {
#pragma unroll
      for (int i = 0; i < kVec8; ++i) {
        largest[i] = fmaxf(largest[i], parts[group * params_.vectors + vector_][i]);
      }
    }
  }

  const CompressParams& params_;
  const SequenceTokens& of_;
  std::int64_t entry_;
  std::int64_t begin_;
  int vector_;  // of the thread: which columns,
  int group_;   // which tokens
  int groups_;
};

}  // namespace quire::cuda::any::compress_keys
