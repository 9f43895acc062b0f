// SPDX-License-Identifier: Apache-2.0
// Two warpgroups, half of the value columns each: sums of weights · V over an item's tiles, and its output.
#pragma once

#include "cuda/hopper/latent_attention/products.cuh"
#include "cuda/hopper/mla_decode/many_rows/store_parts.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class SumManyRows {
 public:
  // `group`: also the half of the columns. `first_row`: of the item, this block's.
  __device__ SumManyRows(const MlaDecodeParams& params, ManyRowsShared<kConfig>& shared, int group,
                         int first_row)
      : params_(params.attend), shared_(shared), group_(group), first_row_(first_row) {}

  __device__ void run() {
    std::uint32_t stats_phase = 0;
    for (RingPosition<FewRowsConfig::kItems> item_at;; item_at.advance()) {
      shared_.item_ring.wait_full(item_at);
      const LatentItem& item = shared_.items[item_at.stage];
      const int tiles = item.tiles;
      if (tiles == 0) return;
      Sums sums = {};
#pragma unroll 1
      for (int tile = 0; tile < tiles; ++tile, ++tile_) add_tile(sums);
      shared_.stats_full.wait(stats_phase);
      stats_phase ^= 1;
      StoreParts<kConfig> store(params_, shared_, item, first_row_);
      shared_.stats_empty.arrive();
#pragma unroll
      for (int i = 0; i < kParts; ++i) store.store(part(i), sums[i]);
      shared_.item_ring.empty[item_at.stage].arrive();
    }
  }

 private:
  static constexpr int kParts = ManyRows::kGroupParts;
  using Shared = ManyRowsShared<kConfig>;
  using Sums = float[kParts][ManyRows::kPartSums];

  // The group's part `index`, of all.
  __device__ int part(int index) const { return group_ + index * ManyRows::kSumGroups; }

  __device__ void add_tile(Sums& sums) {
    shared_.weights_full.wait(tile_ & 1);
    if (shared_.has_factors != 0) scale(sums);
    const std::uint32_t weights = broadcast(descriptor_low(&shared_.weights));
#pragma unroll
    for (int i = 0; i < kParts; ++i) start(weights, ValuePlace(tile_, part(i)).place, sums[i]);
    cute::warpgroup_wait<1>();
    shared_.values_empty[ValuePlace(tile_, part(0)).place].arrive();
    cute::warpgroup_wait<0>();
    shared_.values_empty[ValuePlace(tile_, part(1)).place].arrive();
    shared_.weights_empty.arrive();
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
  __device__ void start(std::uint32_t weights, int place, float (&sums)[ManyRows::kPartSums]) {
    using Product = TransposedWgmma<DType::f16, ManyRows::kPartColumns>;
    const std::uint32_t values =
        broadcast(address_field(&shared_.values[place]) |
                  static_cast<std::uint32_t>(Shared::kValueSlabBytes >> 4) << 16);
    pin(sums);
    cute::warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < FewRowsConfig::kKeys / 16; ++step) {
      detail::issue<Product>(descriptor(weights + (step * kStepBytes >> 4), kRowsHigh),
                             descriptor(values + (step * 16 * kRowBytes >> 4), kRowsHigh), sums,
                             cute::SM90::GMMA::ScaleOut::One,
                             std::make_index_sequence<ManyRows::kPartSums>{});
    }
    cute::warpgroup_commit_batch();
  }

  const LatentParams& params_;
  Shared& shared_;
  const int group_;
  const int first_row_;
  int tile_ = 0;
};

}  // namespace quire::cuda::hopper
