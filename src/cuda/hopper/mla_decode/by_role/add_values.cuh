// SPDX-License-Identifier: Apache-2.0
// Two warpgroups, half of the columns each: sums of weights · V over an item's tiles, and its output.
#pragma once

#include "cuda/hopper/latent_attention/products.cuh"
#include "cuda/hopper/latent_attention/store.cuh"
#include "cuda/hopper/mla_decode/by_role/shared.cuh"

namespace quire::cuda::hopper {

class AddValues {
 public:
  // `half`: of the columns.
  __device__ AddValues(const LatentParams& params, ByRoleShared& shared, int half, int rank)
      : params_(params),
        shared_(shared),
        half_(half),
        row_(static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4)),
        first_row_(rank * ByRole::kRows) {}

  __device__ void run() {
    for (RingPosition<ByRole::kItems> item_at;; item_at.advance()) {
      shared_.item_ring.wait_full(item_at);
      const LatentItem& item = shared_.items[item_at.stage];
      if (item.tiles == 0) return;
      Sums sums = {};
      for (int tile = 0; tile < item.tiles; ++tile, ++tile_) add_tile(sums);
      finish(item, sums);
      arrive_once(shared_.item_ring.empty[item_at.stage]);
    }
  }

 private:
  static constexpr int kColumns = LatentConfig::kLatent / 2;
  // One instruction's columns: those of 256 want more registers than 640 threads begin with.
  static constexpr int kOpColumns = 128;
  static constexpr int kOpSums = kOpColumns / 2;  // of a thread
  static constexpr int kOpSlabs = kOpColumns / ByRole::kSlabColumns;
  static constexpr int kParts = ByRole::kParts / ByRole::kGroups;  // of the group's columns
  static constexpr int kOps = ByRole::kPartSlabs / kOpSlabs;       // for a part
  static constexpr int kSums = kColumns / 2;
  using Sums = float[kSums];
  using Op = decltype(cute::SM90::GMMA::ss_op_selector<
                      cute::bfloat16_t, cute::bfloat16_t, float,
                      cute::Shape<cute::Int<ByRole::kRows>, cute::Int<kOpColumns>, cute::Int<16>>,
                      cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::MN>());

  __device__ void add_tile(Sums& sums) {
    shared_.weights_full.wait(static_cast<std::uint32_t>(tile_) & 1);
    const float* factors = shared_.factors[tile_ % ByRole::kGroups];
    const float factor[2] = {factors[row_], factors[row_ + 8]};
    if (!__all_sync(0xffffffff, factor[0] == 1.0F && factor[1] == 1.0F)) scale_rows(sums, factor);
    pin(sums);
    cute::warpgroup_arrive();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      multiply(part, sums);
      cute::warpgroup_commit_batch();
    }
    if constexpr (kParts == 2) {
      cute::warpgroup_wait<1>();
      release(0);
    }
    cute::warpgroup_wait<0>();
    pin(sums);
    arrive_once(shared_.weights_empty[(tile_ + 1) % ByRole::kGroups]);
    release(kParts - 1);
  }
  __device__ void release(int part) {
    arrive_once(shared_.empty[stage_of(tile_)][kParts * half_ + part]);
  }

  // `part`: of the group's columns.
  __device__ void multiply(int part, Sums& sums) {
    const int slab = (kParts * half_ + part) * ByRole::kPartSlabs;
    const std::uint32_t a = broadcast(descriptor_low(&shared_.weights));
    const std::uint32_t b = broadcast(address_field(&shared_.stages[stage_of(tile_)][slab]) |
                                      static_cast<std::uint32_t>(ByRole::kSlabBytes >> 4) << 16);
#pragma unroll
    for (int step = 0; step < ByRole::kKeys / 16; ++step) {
#pragma unroll
      for (int op = 0; op < kOps; ++op) {
        const int bytes = step * 16 * kRowBytes + op * kOpSlabs * ByRole::kSlabBytes;
        issue(descriptor(a + (step * kStepBytes >> 4), kRowsHigh),
              descriptor(b + (bytes >> 4), kRowsHigh), sums + (part * kOps + op) * kOpSums,
              std::make_index_sequence<kOpSums>{});
      }
    }
  }
  template <std::size_t... kIndex>
  __device__ static void issue(std::uint64_t a, std::uint64_t b, float* sums,
                               std::index_sequence<kIndex...>) {
    Op::fma(a, b, sums[kIndex]..., cute::SM90::GMMA::ScaleOut::One);
  }

  __device__ void finish(const LatentItem& item, const Sums& sums) {
    RowStats stats;
    shared_.stats_full.wait(stats_phase_);
    stats_phase_ ^= 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 even = shared_.stats[0][row_ + 8 * i];
      const float2 odd = shared_.stats[1][row_ + 8 * i];
      stats.max[i] = fmaxf(even.x, odd.x);
      stats.sum[i] = even.y * rebased(even.x, stats.max[i]) + odd.y * rebased(odd.x, stats.max[i]);
    }
    arrive_once(shared_.stats_empty);
    store_item<DType::bf16>(
        params_, item,
        {.row = first_row_ + row_, .column = half_ * kColumns, .stores_stats = half_ == 0}, stats,
        sums);
  }

  const LatentParams& params_;
  ByRoleShared& shared_;
  const int half_;
  const int row_;  // of the block, the thread's first; the second stands 8 below it
  const int first_row_;
  int tile_ = 0;
  std::uint32_t stats_phase_ = 0;
};

}  // namespace quire::cuda::hopper
