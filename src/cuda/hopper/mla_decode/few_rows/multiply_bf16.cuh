// SPDX-License-Identifier: Apache-2.0
// Rows of bf16: both operands of every product are in shared memory, and one warpgroup is enough.
#pragma once

#include "cuda/hopper/latent_attention/products.cuh"
#include "cuda/hopper/mla_decode/few_rows/multiply_tile.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class MultiplyTile<kConfig, DType::bf16> {
 public:
  static constexpr int kSums = kConfig.group_rows / 2;  // of a thread, for 64 × the group's rows
  using Sums = float[kSums];

  __device__ MultiplyTile(const LatentRowFormat&, FewRowsShared<kConfig>& shared, int)
      : shared_(shared) {}

  __device__ void score(int tile, Sums& scores) {
    const std::uint32_t q = broadcast(descriptor_low(&shared_.q));
    pin(scores);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const SlotPlace<kConfig> at(kParts * tile + part);
      slot_[part] = at.slot;
      shared_.ring.full[at.slot].wait(at.phase);
      const auto& slot = shared_.slots[at.slot];
      const std::uint32_t keys = broadcast(descriptor_low(&slot.latents));
      cute::warpgroup_arrive();
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
        multiply_slab(keys + (slab * kSlabBytes >> 4),
                      q + ((part * kSlabs + slab) * Shared::kQuerySlabBytes >> 4), scores,
                      part == 0 && slab == 0);
      }
      if (part == 0) {
        multiply_slab(keys + (kSlabs * kSlabBytes >> 4),
                      q + (FewRowsConfig::kBlocks * Shared::kQuerySlabBytes >> 4), scores, false);
      }
    }
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    pin(scores);
  }

  __device__ std::uint64_t valid() const { return shared_.valid[slot_[0]]; }
  __device__ void zero_from(int key) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll 1
      for (auto& slab : shared_.slots[slot_[part]].latents) zero_rows(slab, key);
    }
  }

  // A slot is given back when its products are done.
  __device__ void add_values(float (&sums)[FewRowsConfig::kBlocks][kSums]) {
    const std::uint32_t weights = broadcast(descriptor_low(&shared_.weights));
#pragma unroll
    for (int block = 0; block < FewRowsConfig::kBlocks; ++block) pin(sums[block]);
    cute::warpgroup_arrive();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const std::uint32_t values =
          broadcast(address_field(&shared_.slots[slot_[part]].latents) |
                    static_cast<std::uint32_t>(kSlabBytes >> 4) << 16);
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
        for (int step = 0; step < FewRowsConfig::kKeys / 16; ++step) {
          const int bytes = slab * kSlabBytes + step * 16 * kRowBytes;
          detail::issue<ValueOp>(descriptor(values + (bytes >> 4), kRowsHigh),
                                 descriptor(weights + (step * kStepBytes >> 4), kRowsHigh),
                                 sums[part * kSlabs + slab], cute::SM90::GMMA::ScaleOut::One,
                                 std::make_index_sequence<kSums>{});
        }
      }
      cute::warpgroup_commit_batch();
    }
    cute::warpgroup_wait<1>();
    arrive_by_warp(shared_.ring.empty[slot_[0]]);
    cute::warpgroup_wait<0>();
    arrive_by_warp(shared_.ring.empty[slot_[1]]);
#pragma unroll
    for (int block = 0; block < FewRowsConfig::kBlocks; ++block) pin(sums[block]);
  }

 private:
  using Shared = FewRowsShared<kConfig>;
  static constexpr int kParts = 2;
  static constexpr int kSlabs = FewRowsSlot<kConfig>::kSlabs;
  static constexpr int kSlabBytes = FewRowsConfig::kKeys * kRowBytes;
  using KeyOp = Wgmma<DType::bf16, kConfig.group_rows>;
  // Values are read across their rows: columns are the instruction's rows.
  using ValueOp = decltype(cute::SM90::GMMA::ss_op_selector<
                           cute::bfloat16_t, cute::bfloat16_t, float,
                           cute::Shape<cute::Int<64>, cute::Int<kConfig.group_rows>, cute::Int<16>>,
                           cute::SM90::GMMA::Major::MN, cute::SM90::GMMA::Major::K>());

  __device__ static void multiply_slab(std::uint32_t keys, std::uint32_t q, Sums& scores,
                                       bool starts_sum) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int bytes = step * kStepBytes >> 4;
      detail::issue<KeyOp>(descriptor(keys + bytes, kRowsHigh), descriptor(q + bytes, kRowsHigh),
                           scores,
                           starts_sum && step == 0 ? cute::SM90::GMMA::ScaleOut::Zero
                                                   : cute::SM90::GMMA::ScaleOut::One,
                           std::make_index_sequence<kSums>{});
    }
  }

  Shared& shared_;
  int slot_[kParts] = {};
};

}  // namespace quire::cuda::hopper
