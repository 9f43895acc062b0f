// SPDX-License-Identifier: Apache-2.0
// Two warpgroups, half of the value columns each: sums of weights · V over an item's tiles, and its
// output.
#pragma once

#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/start_product.cuh"
#include "cuda/sm90/mla_decode/swap_ab/store_columns.cuh"

namespace quire::cuda::sm90::mla_decode {

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
      const int place = number % SwapAbConfig::kItems;
      shared_.item_ring.full[place].wait(number / SwapAbConfig::kItems & 1);
      const LatentItem& item = shared_.items[place];
      if (item.tiles == 0) return;
      Sums sums = {};
      const int tiles = item.tiles;
      for (int tile = 0; tile < tiles; ++tile, ++tile_) add_tile(sums);
      shared_.stats_full.wait(number & 1);
      StoreColumns<kConfig> store(params_, shared_, item, half_);
      store.find_targets();
      shared_.stats_empty.arrive();
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) store.store(block, sums[block]);
      shared_.item_ring.empty[place].arrive();
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
