// SPDX-License-Identifier: Apache-2.0
// The products of a tile of e4m3 rows. While the tensor cores have 64 columns of it, the next 64 are
// fetched and converted.
#pragma once

#include "cuda/hopper/latent_attention/products.cuh"
#include "cuda/hopper/mla_decode/few_rows/operands.cuh"
#include "cuda/hopper/mla_decode/few_rows/shared.cuh"

namespace quire::cuda::hopper {

// Of a thread's two keys.
struct KeyScales {
  float latent[2][FewRows::kScaleGroups];
  float rope[2];
};

template <typename Variant> class MultiplyBytes {
 public:
  static constexpr int kRows = Variant::kRows;
  static constexpr int kSums = kRows / 2;  // of a thread, for 64 × kRows
  using Sums = float[kSums];

  __device__ MultiplyBytes(FewRowsShared<Variant>& shared, int group)
      : shared_(shared), group_(group) {}

  // Scales are applied to the products of 128 columns, in fp32.
  __device__ void score(int stage, bool has_fp8_rope, const KeyScales& scales, Sums& scores) {
    std::uint32_t words[2][kOperandWords];
    float parts[2][kSums];
    const std::uint32_t q = broadcast(descriptor_low(&shared_.q));
#pragma unroll
    for (int block = 0; block < FewRows::kBlocks; ++block) {
      const std::byte* slab = shared_.stages[stage].latents[block / 2];
      key_words<kRowBytes>(slab, block % 2 * 4, words[block % 2]);
      start<KeyOp>(words[block % 2], q + (block * kSlabBytes >> 4), parts[block / 2 % 2],
                   block % 2 == 0);
      cute::warpgroup_wait<1>();
      if (block % 2 == 0 && block > 0) add(block / 2 - 1, scales, parts[(block / 2 + 1) % 2], scores);
    }
    score_rope(stage, has_fp8_rope, words[0], parts[0]);
    cute::warpgroup_wait<1>();
    add(FewRows::kScaleGroups - 1, scales, parts[1], scores);
    cute::warpgroup_wait<0>();
    pin(parts[0]);
#pragma unroll
    for (int i = 0; i < kSums; ++i) scores[i] = fmaf(parts[0][i], scales.rope[i / 2 % 2], scores[i]);
  }

  // The stage is given back as soon as its last bytes are in registers.
  __device__ void add_values(int stage, bool has_groups, float (&sums)[FewRows::kBlocks][kSums]) {
    std::uint32_t words[2][kOperandWords];
    const std::uint32_t weights = broadcast(descriptor_low(&shared_.weights[group_]));
    const std::uint32_t step = broadcast(has_groups ? kSlabBytes >> 4 : 0);
#pragma unroll
    for (int block = 0; block < FewRows::kBlocks; ++block) {
      value_words(shared_.stages[stage].latents[block / 2], block % 2 * 4, words[block % 2]);
      start<ValueOp>(words[block % 2], weights + block / 2 * step, sums[block], false);
      if (block == FewRows::kBlocks - 1) release(stage);
      cute::warpgroup_wait<1>();
    }
    cute::warpgroup_wait<0>();
#pragma unroll
    for (int block = 0; block < FewRows::kBlocks; ++block) pin(sums[block]);
  }

 private:
  static constexpr int kSlabBytes = FewRowsShared<Variant>::kSlabBytes;
  using Major = cute::SM90::GMMA::Major;
  template <typename Element>
  using RegisterOp =
      decltype(cute::SM90::GMMA::rs_op_selector<
               Element, Element, float,
               cute::Shape<cute::Int<64>, cute::Int<kRows>, cute::Int<16>>, Major::K, Major::K>());
  using KeyOp = RegisterOp<cute::half_t>;
  using ValueOp = RegisterOp<cute::bfloat16_t>;

  // sums (+)= 64 × 64 of registers · a slab of 64 columns.
  template <typename Op>
  __device__ static void start(std::uint32_t (&words)[kOperandWords], std::uint32_t slab, Sums& sums,
                               bool starts_sum) {
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

  __device__ void score_rope(int stage, bool is_fp8, std::uint32_t (&words)[kOperandWords],
                             Sums& part) {
    const std::uint32_t q = broadcast(descriptor_low(&shared_.q[FewRows::kBlocks]));
    if (is_fp8) {
      key_words<LatentConfig::kTailBytes>(shared_.stages[stage].rope, 0, words);
      start<KeyOp>(words, q, part, true);
      return;
    }
    const std::uint32_t keys = broadcast(descriptor_low(&shared_.stages[stage].rope));
    cute::warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int bytes = step * kStepBytes >> 4;
      detail::issue<Wgmma<DType::bf16, kRows>>(
          descriptor(keys + bytes, kRowsHigh), descriptor(q + bytes, kRowsHigh), part,
          step == 0 ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
          std::make_index_sequence<kSums>{});
    }
    cute::warpgroup_commit_batch();
  }

  __device__ static void add(int group, const KeyScales& scales, Sums& part, Sums& scores) {
    pin(part);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const float scaled = part[i] * scales.latent[i / 2 % 2][group];
      scores[i] = group == 0 ? scaled : scores[i] + scaled;
    }
  }

  __device__ void release(int stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared_.ring.empty[stage].arrive();
  }

  FewRowsShared<Variant>& shared_;
  const int group_;
};

}  // namespace quire::cuda::hopper
