// SPDX-License-Identifier: Apache-2.0
// The softmax of a thread's two rows (8 apart), a tile of keys at a time. The base of a row's exponents
// follows its maximum only when that has risen by more than 2^8 or so: sums are almost never multiplied
// again, and no maximum is looked for unless a sum of weights says that one has risen.
#pragma once

#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/sparse_mla/params.h"
#include "cuda/sm90/sparse_mla/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

// What remains to be done to a row's sums; lse is the natural logarithm.
struct SparseFinish {
  float factor;
  float lse;
};

// base in powers of two; -inf: no key.
__device__ inline SparseFinish finish_row(float base, float sum, const float* sinks, int head) {
  const float sink = sinks == nullptr ? -INFINITY : sinks[head] * kLog2e;
  const float top = fmaxf(base, sink);
  // No key, or scores of -inf only: the sink has no value, whatever it is. A NaN score is in the sum, whatever the maximum.
  if (base == -INFINITY && sum == 0.0F) return {.factor = 0.0F, .lse = sink * kLn2};
  const float from = top == -INFINITY ? 0.0F : top;
  const float weight = base == -INFINITY ? 0.0F : exp2f(base - from);
  const float total = sum * weight + (sinks == nullptr ? 0.0F : exp2f(sink - from));
  return {.factor = weight / total, .lse = (from + log2f(total)) * kLn2};
}

struct SparseSoftmax {
  static constexpr float kRise = 8.0F;

  float base[2];  // in units of the scores; -inf: no key yet
  float sum[2];   // of this thread's columns

  __device__ void reset() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      base[i] = -INFINITY;
      sum[i] = 0.0F;
    }
  }

  // Scores into weights, with the base as it is: exponentials begin at once. False: with it a sum of this
  // thread's weights is too large or none at all, and nothing is changed but `weights`. By whole warps,
  // of which one thread with `is_wanted` false is enough.
  template <int kScores>
  __device__ bool weigh_as_before(const float (&scores)[kScores], float to_log2, bool is_wanted,
                                  std::uint32_t (&weights)[kScores / 2]) {
    // Not less than weigh() leaves a row with: where this fails, that one raises the base.
    constexpr float kMost = (1 << static_cast<int>(kRise)) * kScores / 2;
    float added[2];
    bool is_good = is_wanted;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float offset = base[i] * to_log2;
      is_good = is_good && is_near(offset);
      float even = 0.0F;
      float odd = 0.0F;
#pragma unroll
      for (int j = 2 * i; j < kScores; j += 4) {
        const float x = exp2_approx(fmaf(scores[j], to_log2, -offset));
        const float y = exp2_approx(fmaf(scores[j + 1], to_log2, -offset));
        even += x;
        odd += y;
        weights[j / 2] = pack_pair<DType::bf16>(x, y);
      }
      added[i] = even + odd;
    }
    is_good = is_good && added[0] <= kMost && added[1] <= kMost;
    if (!__all_sync(0xffffffff, is_good)) return false;
    sum[0] += added[0];
    sum[1] += added[1];
    return true;
  }

  // Scores into weights; keep: what to multiply the sums of earlier tiles by. True: by one, all over the
  // warp.
  template <int kScores>
  __device__ bool weigh(float (&scores)[kScores], float to_log2, float (&keep)[2]) {
    const bool stays = !rise(scores, to_log2, keep);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_far = !is_near(base[i] * to_log2);
      const float offset = is_far ? 0.0F : base[i] * to_log2;
      const float taken_off = is_far && base[i] != -INFINITY ? base[i] : 0.0F;
      float even = 0.0F;
      float odd = 0.0F;
#pragma unroll
      for (int j = 2 * i; j < kScores; j += 4) {
        scores[j] = exp2_approx(fmaf(scores[j] - taken_off, to_log2, -offset));
        scores[j + 1] = exp2_approx(fmaf(scores[j + 1] - taken_off, to_log2, -offset));
        even += scores[j];
        odd += scores[j + 1];
      }
      sum[i] += even + odd;
    }
    return stays;
  }

 private:
  template <int kScores>
  __device__ bool rise(const float (&scores)[kScores], float to_log2, float (&keep)[2]) {
    float top[2];
    bool has_risen = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      top[i] = fmaxf(scores[2 * i], scores[2 * i + 1]);
#pragma unroll
      for (int j = 2 * i + 4; j < kScores; j += 4) {
        top[i] = fmaxf(top[i], fmaxf(scores[j], scores[j + 1]));
      }
      top[i] = fmaxf(quad_max(top[i]), base[i]);
      has_risen |= (top[i] - base[i]) * to_log2 > kRise;
      keep[i] = 1.0F;
    }
    if (!__any_sync(0xffffffff, has_risen)) return false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (top[i] != -INFINITY) keep[i] = exp2_approx((base[i] - top[i]) * to_log2);
      base[i] = top[i];
      sum[i] *= keep[i];
    }
    return true;
  }
};

// Bit k of the mask shows column k of the tile; 32 columns to a word.
template <int kWords> __device__ inline bool shows_all(const std::uint32_t (&mask)[kWords]) {
  std::uint32_t all = 0xffffffff;
#pragma unroll
  for (int i = 0; i < kWords; ++i) all &= mask[i];
  return all == 0xffffffff;
}
template <int kWords>
__device__ inline void hide_columns(float (&scores)[16 * kWords],
                                    const std::uint32_t (&mask)[kWords]) {
  if (shows_all(mask)) return;
#pragma unroll
  for (int j = 0; j < 16 * kWords; ++j) {
    const std::uint32_t word = mask[j / 16] >> (threadIdx.x % 4 * 2);
    const int bit = j / 4 % 4 * 8 + j % 2;
    if ((word >> bit & 1) == 0) scores[j] = -INFINITY;
  }
}

// A warpgroup's sums: 64 rows × 256 value columns, in registers.

struct HalfSums {
  static constexpr int kColumns = SparseConfig::kHalfColumns;
  static constexpr int kPairs = SparseConfig::kHalfColumns / 8;  // of a row, in a thread
  using Product = RegisterWgmma<DType::bf16, kColumns>;

  float values[kColumns / 2];

  // sums (+)= weights · values, not waited for. `swizzle_columns`: the half of a tile, four times swizzle_column_bytes.
  template <int kWords>
  __device__ void start(std::uint32_t (&weights)[kWords], const std::byte* swizzle_columns,
                        int swizzle_column_bytes, bool starts_sum) {
    pin(weights);
    wait_is_over();
    cute::warpgroup_arrive();
    multiply_registers<Product>(
        weights, without_rank(transposed_descriptor(swizzle_columns, swizzle_column_bytes)), values,
        starts_sum);
    cute::warpgroup_commit_batch();
  }
  // Keeps the compiler from moving uses across the wait.
  __device__ void wait_is_over() { pin(values); }
  __device__ void scale(const float (&by)[2]) { scale_rows(values, by); }
  // Columns 8j + 2 (thread % 4) and the next one of the thread's row i.
  __device__ float2 pair(int i, int j) const {
    return {values[4 * j + 2 * i], values[4 * j + 2 * i + 1]};
  }
};

// A warpgroup's sums of one half of the columns, to the output or to splits that are merged later.

// Rows of the work tile that the calling thread holds: this one and the eighth after it.
__device__ inline int first_row_of_thread() {
  const unsigned thread = threadIdx.x % SparseConfig::kWarpgroup;
  return static_cast<int>(thread / 32 * 16 + thread % 32 / 4);
}

// Four threads that share a row have a word each of four blocks; afterwards each has one block whole.
// (As the words lie, a store would write 16 bytes of each of eight rows.)
__device__ inline void gather_block(std::uint32_t (&words)[4]) {
  const bool is_odd = (threadIdx.x & 1) != 0;
#pragma unroll
  for (int m = 0; m < 4; m += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffff, is_odd ? words[m] : words[m + 1], 1);
    (is_odd ? words[m] : words[m + 1]) = got;
  }
  const bool is_high = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffff, is_high ? words[m] : words[m + 2], 2);
    (is_high ? words[m] : words[m + 2]) = got;
  }
}

// A row of sums · factor from `to` on. Factor 0: zeros, whatever the sums are. By whole warps;
// `is_there` false: nothing is written.
template <DType kDType>
__device__ inline void store_row(const HalfSums& sums, int i, float factor, std::byte* to,
                                 bool is_there) {
  const auto scaled = [factor](float x) { return factor == 0.0F ? 0.0F : x * factor; };
  const auto thread = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int j = 0; j < HalfSums::kPairs; j += 4) {
    if constexpr (kDType == DType::f32) {
#pragma unroll
      for (int k = j; k < j + 4; ++k) {
        const float2 pair = sums.pair(i, k);
        if (is_there) {
          reinterpret_cast<float2*>(to)[4 * k + thread] = {scaled(pair.x), scaled(pair.y)};
        }
      }
    } else {
      std::uint32_t words[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 pair = sums.pair(i, j + k);
        words[k] = pack_pair<kDType>(scaled(pair.x), scaled(pair.y));
      }
      gather_block(words);
      if (is_there) {
        reinterpret_cast<uint4*>(to)[j + thread] = {words[0], words[1], words[2], words[3]};
      }
    }
  }
}

struct StoreRows {
  const SparseParams& params;
  const WorkTileInfo& work_tile;
  int first_column;

  __device__ void store(const HalfSums& sums, const float2& factors) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row_of_thread() + 8 * i;
      const bool is_there = work_tile.first_head + row < params.work.heads;
      const float factor = i == 0 ? factors.x : factors.y;
      if (work_tile.is_split()) {
        store_row<DType::f32>(sums, i, 1.0F, split_address(row), is_there);
      } else if (params.output.dtype == DType::bf16) {
        store_row<DType::bf16>(sums, i, factor, output_address(row, 2), is_there);
      } else if (params.output.dtype == DType::f16) {
        store_row<DType::f16>(sums, i, factor, output_address(row, 2), is_there);
      } else {
        store_row<DType::f32>(sums, i, factor, output_address(row, 4), is_there);
      }
    }
  }

 private:
  __device__ std::byte* split_address(int row) const {
    const std::int64_t split_row = std::int64_t{work_tile.split} * SparseConfig::kHeads + row;
    return reinterpret_cast<std::byte*>(params.splits.sums + split_row * SparseConfig::kLatent +
                                        first_column);
  }
  __device__ std::byte* output_address(int row, int bytes) const {
    const AttendOutput& output = params.output;
    return output.out + work_tile.token * output.token_bytes +
           std::int64_t{work_tile.first_head + row} * output.head_bytes + first_column * bytes;
  }
};

// A row's LSE, or what the merge has to know of it. Returns the factor of its sums.
__device__ inline float finish_work_tile_row(const SparseParams& params,
                                             const WorkTileInfo& work_tile, int i, float base,
                                             float sum) {
  const int row = first_row_of_thread() + 8 * i;
  const int head = work_tile.first_head + row;
  if (head >= params.work.heads) return 0.0F;
  const bool is_first = threadIdx.x % 4 == 0;
  if (work_tile.is_split()) {
    const std::int64_t split_row = std::int64_t{work_tile.split} * SparseConfig::kHeads + row;
    if (is_first) params.splits.stats[split_row] = {base, sum};
    return 1.0F;
  }
  const SparseFinish finish = finish_row(base, sum, params.output.sinks, head);
  if (is_first && params.output.lse != nullptr) {
    params.output.lse[work_tile.token * params.output.lse_token_stride +
                      head * params.output.lse_head_stride] = finish.lse;
  }
  return finish.factor;
}

}  // namespace quire::cuda::sm90::sparse_mla
