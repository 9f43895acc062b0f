// SPDX-License-Identifier: Apache-2.0
// A finished item's sums, half of the value columns, from registers: to the output, or as a piece to the
// workspace.
#pragma once

#include "cuda/sm90/mla_decode/latent/merge.cuh"
#include "cuda/sm90/mla_decode/swap_ab/scale_power.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

template <SwapAbConfig kConfig> class StoreColumns {
 public:
  static constexpr int kSums = kConfig.rows / 2;
  static constexpr int kThreadRows = kConfig.rows / 4;

  __device__ StoreColumns(const LatentParams& params, const SwapAbShared<kConfig>& shared,
                          const LatentItem& item, int half)
      : params_(params), shared_(shared), item_(item), half_(half) {}

  // Where the thread's rows go, and what they are divided by. Rows beyond the item's: nowhere.
  __device__ void find_targets() {
    const LatentOutputs& outputs = params_.outputs;
    const int column = half_ * LatentConfig::kLatent / 2 + 16 * warp() + pair_column();
    const float unlift = sums_unlift();
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const MergedStats stats = stats_of(i);
      targets_[i] = nullptr;
      factors_[i] = 0.0F;
      if (row(i) >= item_.rows) continue;
      if (is_piece()) {
        const std::int64_t at = item_.slot * params_.pieces.rows + row(i);
        targets_[i] =
            reinterpret_cast<std::byte*>(params_.pieces.sums + at * LatentConfig::kLatent + column);
        factors_[i] = unlift;
        if (stores_stats()) params_.pieces.stats[at] = {stats.max, stats.sum};
        continue;
      }
      const std::int64_t token = item_.first_token + row(i) / params_.heads;
      const int head = row(i) % params_.heads;
      const RowEnd end = end_row(outputs, head, stats.max, stats.sum);
      factors_[i] = end.factor * unlift;
      targets_[i] = outputs.out + token * outputs.token_stride_bytes +
                    head * outputs.head_stride_bytes + column * 2;
      if (outputs.lse != nullptr && stores_stats()) {
        outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = end.lse;
      }
    }
  }

  // `block`: of 64 columns, of the half.
  __device__ void store(int block, const float (&sums)[kSums]) const {
#pragma unroll
    for (int index = 0; index < kThreadRows; ++index) {
      const int i = index / 2 * 4 + index % 2;
      const float2 pair = pair_of(sums[i] * factors_[index], sums[i + 2] * factors_[index]);
      if (targets_[index] == nullptr) continue;
      if (is_piece()) {
        *reinterpret_cast<float2*>(targets_[index] + 64 * block * sizeof(float)) = pair;
      } else {
        *reinterpret_cast<std::uint32_t*>(targets_[index] + 64 * block * 2) =
            pack_pair<DType::bf16>(pair.x, pair.y);
      }
    }
  }

 private:
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }
  __device__ static int warp() {
    return static_cast<int>(threadIdx.x % 128 / 32);
  }
  __device__ static int row(int index) {
    return index / 2 * 8 + lane() % 4 * 2 + index % 2;
  }
  __device__ bool is_piece() const {
    return item_.slot >= 0;
  }
  __device__ bool stores_stats() const {
    return half_ == 0 && warp() == 0 && lane() < 4;
  }

  __device__ float sums_unlift() const {
    if constexpr (!kConfig.is_fp8()) return 1.0F;
    return ScalePower::unlift(max(shared_.stats_powers[0], shared_.stats_powers[1]));
  }
  // Of a row, from both groups of the scores.
  __device__ MergedStats stats_of(int index) const {
    const float even = shared_.stats_refs[0][row(index)];
    const float odd = shared_.stats_refs[1][row(index)];
    const float top = fmaxf(even, odd);
    return {
        .max = top,
        .sum = group_sum(0, index) * rebased(even, top) + group_sum(1, index) * rebased(odd, top)};
  }
  __device__ float group_sum(int group, int index) const {
    float sum = 0.0F;
#pragma unroll
    for (int w = 0; w < SwapAbConfig::kGroupWarps; ++w) {
      sum += shared_.stats_sums[group][w][row(index)];
    }
    return sum;
  }

  // Of a warp's 16 columns, the first of the two that a thread stores.
  __device__ static int pair_column() {
    const int eighth = lane() / 4;
    return kConfig.is_fp8() ? 2 * eighth : eighth / 2 * 2 + eighth % 2 * 8;
  }
  // A thread's two columns of a row, neighbours (operands.cuh). Those of bf16 rows stand 8 apart: a
  // thread gives one of them to its neighbour and takes the other's.
  __device__ static float2 pair_of(float first, float second) {
    if constexpr (kConfig.is_fp8()) return {first, second};
    const bool is_odd = lane() / 4 % 2 != 0;
    const float taken = __shfl_xor_sync(0xffffffff, is_odd ? first : second, 4);
    return is_odd ? float2{taken, second} : float2{first, taken};
  }

  const LatentParams& params_;
  const SwapAbShared<kConfig>& shared_;
  const LatentItem& item_;
  const int half_;
  float factors_[kThreadRows];
  std::byte* targets_[kThreadRows];  // of block 0
};

}  // namespace quire::cuda::sm90::mla_decode
