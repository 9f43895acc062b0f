// SPDX-License-Identifier: Apache-2.0
// An item's sums go to the output or, as a piece, to the workspace. Where two groups had its tiles in turn,
// their sums become one before, and group g finishes value columns [256g, 256g + 256).
#pragma once

#include "cuda/hopper/latent_attention/row_stats.cuh"
#include "cuda/hopper/mla_decode/few_rows/shared.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class FinishRows {
 public:
  static constexpr int kRows = kConfig.group_rows;
  static constexpr int kSums = kRows / 2;
  static constexpr int kThreadRows = kRows / 4;

  struct Stats {
    const float (&refs)[kThreadRows];
    const float (&sums)[kThreadRows];  // of the thread's keys
  };

  __device__ FinishRows(const LatentParams& params, FewRowsShared<kConfig>& shared,
                        const LatentItem& item, int group)
      : params_(params),
        shared_(shared),
        item_(item),
        group_(group),
        first_row_(kConfig.row_groups > 1 ? group * kRows : 0) {}

  // owns_even: this group had the item's first tile. The order of additions never depends on it.
  __device__ void finish(bool owns_even, const Stats& stats,
                         const float (&sums)[FewRowsConfig::kBlocks][kSums]) {
    leave_stats(stats);
    if constexpr (kConfig.tile_groups == 1) {
      store_all(sums);
    } else if (group_ == 0) {
      join<0>(owns_even, sums);
    } else {
      join<1>(owns_even, sums);
    }
  }

 private:
  static constexpr int kHalf = FewRowsConfig::kBlocks / 2;
  // Blocks of columns that cross at a time, through the place of the weights.
  static constexpr int kCrossing = 2;
  static_assert(kConfig.tile_groups == 1 ||
                kCrossing * 128 * sizeof(float[kSums]) <= sizeof(FewRowsShared<kConfig>::weights[0]));

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x % 128 / 32); }
  // Of the group's, and of the item's.
  __device__ static int row(int index) { return index / 2 * 8 + lane() % 4 * 2 + index % 2; }
  __device__ int item_row(int index) const { return first_row_ + row(index); }
  __device__ static void sync_groups() {
    cutlass::arch::NamedBarrier::sync(128 * kConfig.groups(), 0);
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

  __device__ void store_all(const float (&sums)[FewRowsConfig::kBlocks][kSums]) {
    cutlass::arch::NamedBarrier::sync(128, static_cast<std::uint32_t>(1 + group_));
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      tops_[i] = shared_.refs[group_][row(i)];
      totals_[i] = group_sum(group_, i);
    }
    find_targets();
#pragma unroll
    for (int block = 0; block < FewRowsConfig::kBlocks; ++block) store(block, sums[block]);
  }
  __device__ float group_sum(int group, int index) const {
    float sum = 0.0F;
#pragma unroll
    for (int w = 0; w < FewRowsConfig::kGroupWarps; ++w) {
      sum += shared_.sums[group][w][row(index)];
    }
    return sum;
  }

  template <int kGroup>
  __device__ void join(bool owns_even, const float (&sums)[FewRowsConfig::kBlocks][kSums]) {
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
    const int even = owns_even ? group_ : group_ ^ 1;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float ref[2] = {shared_.refs[even][row(i)], shared_.refs[even ^ 1][row(i)]};
      tops_[i] = fmaxf(ref[0], ref[1]);
      const float worth[2] = {rebased(ref[0], tops_[i]), rebased(ref[1], tops_[i])};
      totals_[i] = fmaf(group_sum(even ^ 1, i), worth[1], group_sum(even, i) * worth[0]);
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
    return item_.first_token + item_row(index) / params_.heads;
  }
  __device__ int head(int index) const { return item_row(index) % params_.heads; }
  __device__ bool is_piece() const { return item_.slot >= 0; }

  // Where the thread's rows go, and what they are divided by. Rows beyond the item's: nowhere.
  __device__ void find_targets() {
    const int column = 16 * warp() + pair_column();
    const LatentOutputs& outputs = params_.outputs;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      targets_[i] = nullptr;
      if (item_row(i) >= item_.rows) continue;
      if (is_piece()) {
        const std::int64_t at = item_.slot * params_.pieces.rows + item_row(i);
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
  __device__ bool stores_stats() const {
    return (kConfig.row_groups > 1 || group_ == 0) && warp() == 0 && lane() < 4;
  }
  __device__ void store_stats() const {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      if (item_row(i) >= item_.rows) continue;
      params_.pieces.stats[item_.slot * params_.pieces.rows + item_row(i)] = {tops_[i], totals_[i]};
    }
  }

  // Of a warp's 16 columns, the first of the two that a thread stores.
  __device__ static int pair_column() {
    const int eighth = lane() / 4;
    if constexpr (kConfig.latents != DType::bf16) return 2 * eighth;  // operands.cuh
    return eighth / 2 * 2 + eighth % 2 * 8;
  }
  // A thread's two columns of a row, neighbours. Those of bf16 rows stand 8 apart: a thread gives one of
  // them to its neighbour and takes the other's.
  __device__ static float2 pair_of(float first, float second) {
    if constexpr (kConfig.latents != DType::bf16) return {first, second};
    const bool is_odd = lane() / 4 % 2 != 0;
    const float taken = __shfl_xor_sync(0xffffffff, is_odd ? first : second, 4);
    return is_odd ? float2{taken, second} : float2{first, taken};
  }

  __device__ void store(int block, const float (&sums)[kSums]) const {
#pragma unroll
    for (int index = 0; index < kThreadRows; ++index) {
      const float2 pair =
          pair_of(sums[index / 2 * 4 + index % 2], sums[index / 2 * 4 + index % 2 + 2]);
      if (targets_[index] == nullptr) continue;
      if (is_piece()) {
        *reinterpret_cast<float2*>(targets_[index] + 64 * block * sizeof(float)) = pair;
      } else {
        *reinterpret_cast<std::uint32_t*>(targets_[index] + 64 * block * 2) =
            pack_pair<DType::bf16>(pair.x * factors_[index], pair.y * factors_[index]);
      }
    }
  }

  const LatentParams& params_;
  FewRowsShared<kConfig>& shared_;
  const LatentItem& item_;
  const int group_;
  const int first_row_;  // of the item, the group's
  float tops_[kThreadRows];
  float totals_[kThreadRows];
  float own_worth_[kThreadRows];  // of this group's sums and of the other's, relative to the tops
  float other_worth_[kThreadRows];
  float factors_[kThreadRows];
  std::byte* targets_[kThreadRows];  // of block 0
};

}  // namespace quire::cuda::hopper
