// SPDX-License-Identifier: Apache-2.0
// Rows of e4m3: while the tensor cores have 64 columns, the next 64 are fetched and converted.
#pragma once

#include "cuda/hopper/latent_attention/products.cuh"
#include "cuda/hopper/mla_decode/few_rows/multiply_tile.cuh"
#include "cuda/hopper/mla_decode/few_rows/operands.cuh"

namespace quire::cuda::hopper {

template <FewRowsConfig kConfig> class MultiplyTile<kConfig, DType::fp8_e4m3> {
 public:
  static constexpr int kSums = kConfig.group_rows / 2;  // of a thread, for 64 × the group's rows
  using Sums = float[kSums];

  __device__ MultiplyTile(const LatentRowFormat& format, FewRowsShared<kConfig>& shared, int group)
      : format_(format), shared_(shared), group_(group) {}

  __device__ void score(int tile, Sums& scores) {
    const SlotPlace<kConfig> at(tile);
    slot_ = at.slot;
    shared_.ring.full[slot_].wait(at.phase);
    read_scales();
    multiply_keys(scores);
  }

  __device__ std::uint64_t valid() const { return shared_.valid[slot_]; }
  __device__ const KeyScales& scales() const { return scales_; }
  __device__ void zero_from(int key) {
#pragma unroll 1
    for (auto& slab : shared_.slots[slot_].latents) zero_rows(slab, key);
  }

  // The slot is given back as soon as its last bytes are in registers.
  __device__ void add_values(float (&sums)[FewRowsConfig::kBlocks][kSums]) {
    std::uint32_t words[2][kOperandWords];
    const std::uint32_t weights = broadcast(descriptor_low(&shared_.weights[group_]));
    const std::uint32_t step =
        broadcast(format_.row_scales_offset_bytes >= 0 ? Shared::kWeightBytes >> 4 : 0);
#pragma unroll
    for (int block = 0; block < FewRowsConfig::kBlocks; ++block) {
      value_words(shared_.slots[slot_].latents[block / 2], block % 2 * 4, words[block % 2]);
      start<ValueOp>(words[block % 2], weights + block / 2 * step, sums[block], false);
      if (block == FewRowsConfig::kBlocks - 1) arrive_by_warp(shared_.ring.empty[slot_]);
      cute::warpgroup_wait<1>();
    }
    cute::warpgroup_wait<0>();
#pragma unroll
    for (int block = 0; block < FewRowsConfig::kBlocks; ++block) pin(sums[block]);
  }

 private:
  using Shared = FewRowsShared<kConfig>;
  using Major = cute::SM90::GMMA::Major;
  template <typename Element>
  using RegisterOp = decltype(cute::SM90::GMMA::rs_op_selector<
                              Element, Element, float,
                              cute::Shape<cute::Int<64>, cute::Int<kConfig.group_rows>, cute::Int<16>>,
                              Major::K, Major::K>());
  using KeyOp = RegisterOp<cute::half_t>;
  using ValueOp = RegisterOp<cute::bfloat16_t>;
  using RopeOp = Wgmma<DType::bf16, kConfig.group_rows>;

  // Scales are applied to the products of 128 columns, in fp32.
  __device__ void multiply_keys(Sums& scores) {
    std::uint32_t words[2][kOperandWords];
    float parts[2][kSums];
    const std::uint32_t q = broadcast(descriptor_low(queries(0)));
#pragma unroll
    for (int block = 0; block < FewRowsConfig::kBlocks; ++block) {
      key_words<kRowBytes>(shared_.slots[slot_].latents[block / 2], block % 2 * 4,
                           words[block % 2]);
      start<KeyOp>(words[block % 2], q + (block * Shared::kQuerySlabBytes >> 4),
                   parts[block / 2 % 2], block % 2 == 0);
      cute::warpgroup_wait<1>();
      if (block % 2 == 0 && block > 0) add(block / 2 - 1, parts[(block / 2 + 1) % 2], scores);
    }
    multiply_rope(words[0], parts[0]);
    cute::warpgroup_wait<1>();
    add(FewRowsConfig::kScaleGroups - 1, parts[1], scores);
    cute::warpgroup_wait<0>();
    pin(parts[0]);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      scores[i] = fmaf(parts[0][i], scales_.rope[i / 2 % 2], scores[i]);
    }
  }
  __device__ const std::byte* queries(int slab) const {
    const int row = kConfig.row_groups > 1 ? group_ * kConfig.group_rows : 0;
    return &shared_.q[slab][row * kRowBytes];
  }

  // sums (+)= 64 × 64 of registers · a slab of 64 columns.
  template <typename Op>
  __device__ static void start(std::uint32_t (&words)[kOperandWords], std::uint32_t slab,
                               Sums& sums, bool starts_sum) {
    pin(words);
    cute::warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      detail::issue<Op>(&words[4 * step], descriptor(slab + (step * kStepBytes >> 4), kRowsHigh),
                        sums,
                        starts_sum && step == 0 ? cute::SM90::GMMA::ScaleOut::Zero
                                                : cute::SM90::GMMA::ScaleOut::One,
                        std::make_index_sequence<kSums>{});
    }
    cute::warpgroup_commit_batch();
  }

  __device__ void multiply_rope(std::uint32_t (&words)[kOperandWords], Sums& part) {
    const std::byte* rope = shared_.slots[slot_].rope;
    const std::uint32_t q = broadcast(descriptor_low(queries(FewRowsConfig::kBlocks)));
    if (format_.has_fp8_rope) {
      key_words<LatentConfig::kTailBytes>(rope, 0, words);
      start<KeyOp>(words, q, part, true);
      return;
    }
    const std::uint32_t keys = broadcast(descriptor_low(rope));
    cute::warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int bytes = step * kStepBytes >> 4;
      detail::issue<RopeOp>(
          descriptor(keys + bytes, kRowsHigh), descriptor(q + bytes, kRowsHigh), part,
          step == 0 ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
          std::make_index_sequence<kSums>{});
    }
    cute::warpgroup_commit_batch();
  }

  __device__ void add(int group, Sums& part, Sums& scores) const {
    pin(part);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const float scaled = part[i] * scales_.latent[i / 2 % 2][group];
      scores[i] = group == 0 ? scaled : scores[i] + scaled;
    }
  }

  __device__ void read_scales() {
    const auto key = static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float4 four{1.0F, 1.0F, 1.0F, 1.0F};
      float rope = 1.0F;
      const float4& there = shared_.slots[slot_].scales[key + 8 * i];
      if (format_.row_scales_offset_bytes >= 0) {
        four = there;
      } else if (format_.token_scales != nullptr) {
        rope = there.x;
        four = {rope, rope, rope, rope};
      }
      scales_.latent[i][0] = four.x;
      scales_.latent[i][1] = four.y;
      scales_.latent[i][2] = four.z;
      scales_.latent[i][3] = four.w;
      scales_.rope[i] = rope;
    }
  }

  const LatentRowFormat& format_;
  Shared& shared_;
  const int group_;
  int slot_ = 0;
  KeyScales scales_;
};

}  // namespace quire::cuda::hopper
