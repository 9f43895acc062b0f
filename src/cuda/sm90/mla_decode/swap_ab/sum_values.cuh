// SPDX-License-Identifier: Apache-2.0
// Two warpgroups, half of the value columns each: sums of weights · V over a work tile's tiles, and its
// output.
#pragma once

#include "cuda/sm90/mla_decode/latent/store.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/operands.cuh"
#include "cuda/sm90/mla_decode/swap_ab/running_max.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

// A finished work tile's sums, half of the value columns, from registers: to the output, or as a split to the
// workspace.

template <SwapAbConfig kConfig> class StoreColumns {
 public:
  static constexpr int kSums = kConfig.rows / 2;
  static constexpr int kThreadRows = kConfig.rows / 4;

  __device__ StoreColumns(const LatentParams& params, const SwapAbShared<kConfig>& shared,
                          const LatentWorkTile& work_tile, int half)
      : params_(params), shared_(shared), work_tile_(work_tile), half_(half) {}

  // Where the thread's rows go, and what they are divided by. Rows beyond the work tile's: nowhere.
  __device__ void find_targets() {
    const AttendOutput& outputs = params_.outputs;
    const int column = half_ * LatentConfig::kLatent / 2 + 16 * warp() + pair_column();
    const float unlift = sums_unlift();
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const MergedStats stats = stats_of(i);
      targets_[i] = nullptr;
      factors_[i] = 0.0F;
      if (row(i) >= work_tile_.rows) continue;
      if (is_split()) {
        const std::int64_t at = work_tile_.slot * params_.splits.rows + row(i);
        targets_[i] =
            reinterpret_cast<std::byte*>(params_.splits.sums + at * LatentConfig::kLatent + column);
        factors_[i] = unlift;
        if (stores_stats()) params_.splits.stats[at] = {stats.max, stats.sum};
        continue;
      }
      const std::int64_t token = work_tile_.first_token + row(i) / params_.heads;
      const int head = row(i) % params_.heads;
      const RowEnd end = end_row(outputs, head, stats.max, stats.sum);
      factors_[i] = end.factor * unlift;
      targets_[i] =
          outputs.out + token * outputs.token_bytes + head * outputs.head_bytes + column * 2;
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
      if (is_split()) {
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
  __device__ bool is_split() const {
    return work_tile_.slot >= 0;
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
  const LatentWorkTile& work_tile_;
  const int half_;
  float factors_[kThreadRows];
  std::byte* targets_[kThreadRows];  // of block 0
};

template <SwapAbConfig kConfig> class SumValues {
 public:
  // `half`: of the columns.
  __device__ SumValues(const MlaDecodeParams& params, SwapAbShared<kConfig>& shared, int half)
      : params_(params.attend),
        shared_(shared),
        half_(half),
        place_(Op::Rows::further(Op::place(static_cast<int>(threadIdx.x % 128 / 32), lane()),
                                 half * kBlocks * Op::kBlockChunks)) {}

  __device__ void run() {
    for (int number = 0;; ++number) {
      const int place = number % SwapAbConfig::kWorkTiles;
      shared_.work_tile_ring.full[place].wait(number / SwapAbConfig::kWorkTiles & 1);
      const LatentWorkTile& work_tile = shared_.work_tiles[place];
      if (work_tile.tiles == 0) return;
      Sums sums = {};
      const int tiles = work_tile.tiles;
      for (int tile = 0; tile < tiles; ++tile, ++tile_) add_tile(sums);
      shared_.stats_full.wait(number & 1);
      StoreColumns<kConfig> store(params_, shared_, work_tile, half_);
      store.find_targets();
      shared_.stats_empty.arrive();
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) store.store(block, sums[block]);
      shared_.work_tile_ring.empty[place].arrive();
    }
  }

 private:
  static constexpr int kBlocks = SwapAbConfig::kBlocks / 2;
  static constexpr int kSums = kConfig.rows / 2;
  using Sums = float[kBlocks][kSums];
  using Op = ValueOperands<kConfig.kind>;
  using Units = const std::byte * [Op::kUnits];

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }

  __device__ void add_tile(Sums& sums) {
    const int group = tile_ % SwapAbConfig::kGroups;
    Units units;
    find_units(units);
    multiply(group, units, sums);
    arrive_by_warp(shared_.weights_empty[group]);
  }

  // Where this lane has rows of the tile.
  __device__ void find_units(Units& units) const {
#pragma unroll
    for (int i = 0; i < Op::kUnits; ++i) {
      units[i] = shared_.units[UnitPlace<kConfig>(tile_, Op::unit(i, lane())).place];
    }
  }

  __device__ void scale(int group, Sums& sums) const {
    float factor[kConfig.rows / 4];
    bool rises = false;
#pragma unroll
    for (int i = 0; i < kConfig.rows / 4; ++i) {
      factor[i] = shared_.factors[group][i / 2 * 8 + lane() % 4 * 2 + i % 2];
      rises = rises || factor[i] != 1.0F;
    }
    if (!__any_sync(0xffffffff, rises)) return;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[block][i] *= factor[i / 4 * 2 + i % 2];
    }
  }

  // Units are given back as soon as their last bytes are in registers.
  __device__ void multiply(int group, const std::byte* const (&units)[Op::kUnits], Sums& sums) {
    typename Op::Raw raw;
    std::uint32_t words[2][kOperandWords];
    const std::uint32_t weights = broadcast(descriptor_low(&shared_.weights[group]));
    constexpr int kStep = kConfig.scale_groups() > 1 ? Shared::kSwizzleColumnBytes >> 4 : 0;
    const std::uint32_t first = weights + half_ * (kBlocks / 2) * kStep;
    shared_.weights_full[group].wait(group_phase(tile_));
    if constexpr (kConfig.is_fp8()) Op::fetch(units, place_, 0, raw);
    scale(group, sums);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if constexpr (kConfig.is_fp8()) {
        Op::convert(raw, words[block % 2]);
        if (block + 1 < kBlocks) Op::fetch(units, place_, block + 1, raw);
      } else {
        Op::fetch(units, place_, block, words[block % 2]);
      }
      if (block + 1 == kBlocks) give_back();
      start_product<Op::kElement, kConfig.rows>(words[block % 2], first + block / 2 * kStep,
                                                sums[block], false);
      cute::warpgroup_wait<1>();
    }
    cute::warpgroup_wait<0>();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) pin(sums[block]);
  }
  __device__ void give_back() {
    __syncwarp();
    if (lane() < SwapAbConfig::kTileUnits) {
      shared_.empty[UnitPlace<kConfig>(tile_, lane()).place].arrive();
    }
  }

  using Shared = SwapAbShared<kConfig>;

  const LatentParams& params_;
  Shared& shared_;
  const int half_;
  const int place_;  // of this lane's first columns, in a unit
  int tile_ = 0;
};

}  // namespace quire::cuda::sm90::mla_decode
