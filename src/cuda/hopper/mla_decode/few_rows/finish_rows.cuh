// SPDX-License-Identifier: Apache-2.0
// An item's sums over even and odd tiles become one, and go to the output or, as a piece, to the
// workspace. Group g finishes value columns [256g, 256g + 256).
#pragma once

#include "cuda/hopper/latent_attention/row_stats.cuh"
#include "cuda/hopper/mla_decode/few_rows/shared.cuh"

namespace quire::cuda::hopper {

template <typename Variant> class FinishRows {
 public:
  static constexpr int kRows = Variant::kRows;
  static constexpr int kSums = kRows / 2;
  static constexpr int kThreadRows = kRows / 4;

  struct Stats {
    const float (&refs)[kThreadRows];
    const float (&sums)[kThreadRows];  // of the thread's keys
  };

  __device__ FinishRows(const LatentParams& params, FewRowsShared<Variant>& shared,
                        const LatentItem& item, int group)
      : params_(params), shared_(shared), item_(item), group_(group) {}

  // owns_even: this group had the item's first tile. The order of additions never depends on it.
  __device__ void finish(bool owns_even, const Stats& stats,
                         const float (&sums)[FewRows::kBlocks][kSums]) {
    even_ = owns_even ? group_ : group_ ^ 1;
    leave_stats(stats);
    if (group_ == 0) {
      join<0>(owns_even, sums);
    } else {
      join<1>(owns_even, sums);
    }
  }

 private:
  static constexpr int kHalf = FewRows::kBlocks / 2;
  // Blocks of columns that cross at a time, through the place of the weights.
  static constexpr int kCrossing =
      FewRows::kScaleGroups * FewRowsShared<Variant>::kSlabBytes / (128 * kSums * 4);
  static_assert(kCrossing == 2);

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x % 128 / 32); }
  __device__ static int row(int index) { return index / 2 * 8 + lane() % 4 * 2 + index % 2; }
  __device__ static void sync_groups() {
    cutlass::arch::NamedBarrier::sync(128 * FewRows::kGroups, 0);
  }

  __device__ void leave_stats(const Stats& stats) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      float sum = stats.sums[i];
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
      }
      if (lane() >= 4) continue;
      shared_.sums[group_][warp()][row(i)] = sum;
      if (warp() == 0) shared_.refs[group_][row(i)] = stats.refs[i];
    }
  }

  template <int kGroup>
  __device__ void join(bool owns_even, const float (&sums)[FewRows::kBlocks][kSums]) {
    constexpr int kOwn = kGroup * kHalf;
    constexpr int kOthers = (kGroup ^ 1) * kHalf;
#pragma unroll
    for (int round = 0; round < kHalf / kCrossing; ++round) {
      if (round > 0) sync_groups();  // what is replaced has been read
#pragma unroll
      for (int i = 0; i < kCrossing; ++i) give(i, sums[kOthers + round * kCrossing + i]);
      sync_groups();
      if (round == 0) {
        read_stats(owns_even);
        find_targets();
      }
#pragma unroll
      for (int i = 0; i < kCrossing; ++i) {
        const int block = kOwn + round * kCrossing + i;
        float joined[kSums];
        take(i, joined);
        add(owns_even, sums[block], joined);
        store(block, joined);
      }
    }
  }

  __device__ float4* crossing(int group, int block) const {
    return reinterpret_cast<float4*>(shared_.weights[group]) + block * kSums / 4 * 128 +
           threadIdx.x % 128;
  }
  __device__ void give(int block, const float (&sums)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i) {
      crossing(group_, block)[128 * i] = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2],
                                          sums[4 * i + 3]};
    }
  }
  __device__ void take(int block, float (&sums)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i) {
      const float4 four = crossing(group_ ^ 1, block)[128 * i];
      sums[4 * i] = four.x;
      sums[4 * i + 1] = four.y;
      sums[4 * i + 2] = four.z;
      sums[4 * i + 3] = four.w;
    }
  }

  __device__ void read_stats(bool owns_even) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float ref[2] = {shared_.refs[even_][row(i)], shared_.refs[even_ ^ 1][row(i)]};
      tops_[i] = fmaxf(ref[0], ref[1]);
      float sum[2] = {};
      float worth[2];
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        worth[odd] = rebased(ref[odd], tops_[i]);
#pragma unroll
        for (int w = 0; w < FewRows::kGroupWarps; ++w) {
          sum[odd] += shared_.sums[even_ ^ odd][w][row(i)];
        }
      }
      totals_[i] = fmaf(sum[1], worth[1], sum[0] * worth[0]);
      own_worth_[i] = owns_even ? worth[0] : worth[1];
      other_worth_[i] = owns_even ? worth[1] : worth[0];
    }
  }

  __device__ void add(bool owns_even, const float (&own)[kSums], float (&others)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int index = i / 4 * 2 + i % 2;
      const float mine = own[i] * own_worth_[index];
      const float theirs = others[i] * other_worth_[index];
      others[i] = owns_even ? fmaf(others[i], other_worth_[index], mine)
                            : fmaf(own[i], own_worth_[index], theirs);
    }
  }

  __device__ std::int64_t token(int index) const {
    return item_.first_token + row(index) / params_.heads;
  }
  __device__ int head(int index) const { return row(index) % params_.heads; }
  __device__ bool is_piece() const { return item_.slot >= 0; }

  // Where the thread's rows go, and what they are divided by. Rows beyond the item's: nowhere.
  __device__ void find_targets() {
    const int column = 16 * warp() + lane() / 4 * 2;
    const LatentOutputs& outputs = params_.outputs;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      targets_[i] = nullptr;
      if (row(i) >= item_.rows) continue;
      if (is_piece()) {
        const std::int64_t at = item_.slot * params_.pieces.rows + row(i);
        targets_[i] =
            reinterpret_cast<std::byte*>(params_.pieces.sums + at * LatentConfig::kLatent + column);
        continue;
      }
      const RowEnd end = end_row(outputs, head(i), tops_[i], totals_[i]);
      factors_[i] = end.factor;
      targets_[i] = outputs.out + token(i) * outputs.token_stride_bytes +
                    head(i) * outputs.head_stride_bytes + column * 2;
      if (outputs.lse != nullptr && stores_stats()) {
        outputs.lse[token(i) * outputs.lse_token_stride + head(i) * outputs.lse_head_stride] =
            end.lse;
      }
    }
    if (is_piece() && stores_stats()) store_stats();
  }
  __device__ bool stores_stats() const { return group_ == 0 && warp() == 0 && lane() < 4; }
  __device__ void store_stats() const {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      if (row(i) >= item_.rows) continue;
      params_.pieces.stats[item_.slot * params_.pieces.rows + row(i)] = {tops_[i], totals_[i]};
    }
  }

  // Neighbouring columns of a row are values i and i + 2 of a thread.
  __device__ void store(int block, const float (&sums)[kSums]) const {
#pragma unroll
    for (int index = 0; index < kThreadRows; ++index) {
      if (targets_[index] == nullptr) continue;
      const float first = sums[index / 2 * 4 + index % 2];
      const float second = sums[index / 2 * 4 + index % 2 + 2];
      if (is_piece()) {
        *reinterpret_cast<float2*>(targets_[index] + 64 * block * sizeof(float)) = {first, second};
      } else {
        *reinterpret_cast<std::uint32_t*>(targets_[index] + 64 * block * 2) =
            pack_pair<DType::bf16>(first * factors_[index], second * factors_[index]);
      }
    }
  }

  const LatentParams& params_;
  FewRowsShared<Variant>& shared_;
  const LatentItem& item_;
  const int group_;
  int even_ = 0;  // the group that had the item's first tile
  float tops_[kThreadRows];
  float totals_[kThreadRows];
  float own_worth_[kThreadRows];  // of this group's sums and of the other's, relative to the tops
  float other_worth_[kThreadRows];
  float factors_[kThreadRows];
  std::byte* targets_[kThreadRows];  // of block 0
};

}  // namespace quire::cuda::hopper
