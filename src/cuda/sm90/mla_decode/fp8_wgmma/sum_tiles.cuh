// SPDX-License-Identifier: Apache-2.0
// Two warpgroups: the softmax of half of the rows each, then sums of weights · V over half of the value columns, and the
// output.
#pragma once

#include "cuda/sm90/mla_decode/fp8_wgmma/store_parts.cuh"
#include "cuda/sm90/mla_decode/fp8_wgmma/weigh_row.cuh"
#include "cuda/sm90/mla_decode/latent/products.cuh"
#include "cuda/sm90/mla_decode/swap_ab/barrier_all.cuh"

namespace quire::cuda::sm90::mla_decode {

template <SwapAbConfig kConfig> class SumTiles {
 public:
  // `group`: also the half of the columns. `first_row`: of the item, this block's.
  __device__ SumTiles(const MlaDecodeParams& params, Fp8WgmmaShared<kConfig>& shared, int group,
                      int first_row)
      : params_(params.attend),
        shared_(shared),
        group_(group),
        first_row_(first_row),
        row_(shared, static_cast<int>(threadIdx.x % Fp8Wgmma::kSumThreads / 4)) {}

  __device__ void run() {
#pragma unroll 1
    for (;; turns_ += 2) {
      const unsigned number = turns_ / 2;
      const unsigned place = number % SwapAbConfig::kItems;
      shared_.item_ring.full[place].wait(number / SwapAbConfig::kItems & 1);
      const LatentItem& item = shared_.items[place];
      const int tiles = item.tiles;
      if (tiles == 0) return;
      row_.begin(params_, item, first_row_);
      Sums sums = {};
#pragma unroll 1
      for (int left = tiles; left > 0; --left, turns_ ^= 1) add_tile(sums);
      row_.leave_stats();
      sync_sums();
      StoreParts<kConfig> store(params_, shared_, item, first_row_, row_.power());
#pragma unroll
      for (int i = 0; i < kParts; ++i) store.store(part(i), sums[i]);
      shared_.item_ring.empty[turns_ / 2 % SwapAbConfig::kItems].arrive();
    }
  }

 private:
  static constexpr int kParts = Fp8Wgmma::kGroupParts;
  using Shared = Fp8WgmmaShared<kConfig>;
  using Sums = float[kParts][Fp8Wgmma::kPartSums];

  // The group's part `index`, of all.
  __device__ int part(int index) const {
    return group_ + index * Fp8Wgmma::kSumGroups;
  }

  __device__ static void sync_sums() {
    cutlass::arch::NamedBarrier::sync(Fp8Wgmma::kSumThreads, 3);
  }

  __device__ void add_tile(Sums& sums) {
    typename WeighRow<kConfig>::Scores scores;
    shared_.scores_full.wait(turns_ & 1);
    row_.fetch(scores);
    sync_sums();  // weights take their place
    const bool stays = row_.weigh(scores);
    cutlass::arch::fence_view_async_shared();
    if (!barrier_all(stays, Fp8Wgmma::kSumThreads, 4)) scale(sums);
    shared_.values_full.wait(turns_ & 1);
    start(part(0), sums[0]);
    start(part(1), sums[1]);
    cute::warpgroup_wait<1>();
    shared_.values_empty[part(0)].arrive();
    cute::warpgroup_wait<0>();
    shared_.values_empty[part(1)].arrive();
    shared_.scores_empty.arrive();
#pragma unroll
    for (int i = 0; i < kParts; ++i) pin(sums[i]);
  }

  __device__ void scale(Sums& sums) const {
    const auto row = static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
    const float factor[2] = {shared_.factors[row], shared_.factors[row + 8]};
#pragma unroll
    for (int i = 0; i < kParts; ++i) scale_rows(sums[i], factor);
  }

  // sums += weights · V of 128 columns.
  __device__ void start(int part, float (&sums)[Fp8Wgmma::kPartSums]) {
    using Product = TransposedWgmma<DType::f16, Fp8Wgmma::kPartColumns>;
    const std::uint32_t weights = broadcast(descriptor_low(&shared_.scores));
    const std::uint32_t values =
        broadcast(address_field(&shared_.values[part]) |
                  static_cast<std::uint32_t>(Shared::kValueSwizzleColumnBytes >> 4) << 16);
    pin(sums);
    cute::warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < SwapAbConfig::kKeys / 16; ++step) {
      detail::issue<Product>(descriptor(weights + (step * kStepBytes >> 4), kRowsHigh),
                             descriptor(values + (step * 16 * kRowBytes >> 4), kRowsHigh), sums,
                             cute::SM90::GMMA::ScaleOut::One,
                             std::make_index_sequence<Fp8Wgmma::kPartSums>{});
    }
    cute::warpgroup_commit_batch();
  }

  const LatentParams& params_;
  Shared& shared_;
  const int group_;
  const int first_row_;
  WeighRow<kConfig> row_;
  // Twice the items before, and one where tiles before were an odd number: registers are few.
  unsigned turns_ = 0;
};

}  // namespace quire::cuda::sm90::mla_decode
