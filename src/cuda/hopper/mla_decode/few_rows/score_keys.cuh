// SPDX-License-Identifier: Apache-2.0
// 64 keys × the query rows of an item: the products of the scores. While the tensor cores have 64
// columns, the next 64 are fetched and converted.
#pragma once

#include "cuda/hopper/latent_attention/products.cuh"
#include "cuda/hopper/mla_decode/few_rows/operands.cuh"
#include "cuda/hopper/mla_decode/params.h"

namespace quire::cuda::hopper {

// Of a thread's two keys. All ones, where rows have none.
struct KeyScales {
  float latent[2][FewRowsConfig::kScaleGroups];
  float rope[2];
};

template <FewRowsConfig kConfig> class ScoreKeys {
 public:
  static constexpr int kSums = kConfig.rows / 2;  // of a thread, for 64 × rows
  using Sums = float[kSums];

  __device__ ScoreKeys(const LatentRowFormat& format, FewRowsShared<kConfig>& shared)
      : format_(format), shared_(shared) {}

  // `place`: of this warp's unit, which is there. Scales are applied to the products of 128 columns, in
  // fp32.
  __device__ void score(int place, const KeyScales& scales, Sums& scores) const {
    typename Op::Raw raw;
    std::uint32_t words[2][kOperandWords];
    float parts[2][kSums];
    const std::byte* at = keys(place);
    const std::uint32_t q = broadcast(descriptor_low(&shared_.q));
    if constexpr (kHasScales) Op::fetch_keys(at, 0, raw);
#pragma unroll
    for (int block = 0; block < FewRowsConfig::kBlocks; ++block) {
      if constexpr (kHasScales) {
        Op::convert_keys(raw, words[block % 2]);
        if (block + 1 < FewRowsConfig::kBlocks)
          Op::fetch_keys(at, (block + 1) * kConfig.block_pitch(), raw);
      } else {
        Op::fetch_keys(at, block * kConfig.block_pitch(), words[block % 2]);
      }
      start<KeyProduct>(words[block % 2], q + (block * Shared::kSlabBytes >> 4),
                        parts[part_of(block)], starts_part(block));
      cute::warpgroup_wait<1>();
      if (kHasScales && block % 2 == 0 && block > 0) {
        add(block / 2 - 1, scales, parts[part_of(block - 1)], scores);
      }
    }
    score_rope(at, words[0], parts[kHasScales ? 0 : part_of(0)]);
    if constexpr (kHasScales) {
      cute::warpgroup_wait<1>();
      add(FewRowsConfig::kScaleGroups - 1, scales, parts[1], scores);
    }
    cute::warpgroup_wait<0>();
    pin(parts[0]);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      scores[i] = kHasScales ? fmaf(parts[0][i], scales.rope[i / 2 % 2], scores[i]) : parts[0][i];
    }
  }

 private:
  using Shared = FewRowsShared<kConfig>;
  using Op = Operands<kConfig.latents>;
  static constexpr bool kHasScales = kConfig.is_fp8();
  using KeyProduct = RowWgmma<Op::kElement, kConfig.rows>;

  // Two blocks share scales; without any, all blocks are one sum.
  __device__ static constexpr int part_of(int block) {
    return kHasScales ? block / 2 % 2 : 0;
  }
  __device__ static constexpr bool starts_part(int block) {
    return kHasScales ? block % 2 == 0 : block == 0;
  }

  __device__ const std::byte* keys(int place) const {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    return shared_.units[place] + Op::key_offset(lane);
  }

  // sums (+)= 64 × 64 of registers · a slab of 64 columns of q.
  template <typename Instruction>
  __device__ static void start(std::uint32_t (&words)[kOperandWords], std::uint32_t slab,
                               Sums& sums, bool starts_sum) {
    pin(words);
    cute::warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      detail::issue<Instruction>(&words[4 * step],
                                 descriptor(slab + (step * kStepBytes >> 4), kRowsHigh), sums,
                                 starts_sum && step == 0 ? cute::SM90::GMMA::ScaleOut::Zero
                                                         : cute::SM90::GMMA::ScaleOut::One,
                                 std::make_index_sequence<kSums>{});
    }
    cute::warpgroup_commit_batch();
  }

  __device__ void score_rope(const std::byte* at, std::uint32_t (&words)[kOperandWords],
                             Sums& part) const {
    const std::uint32_t q = broadcast(descriptor_low(&shared_.q[FewRowsConfig::kBlocks]));
    if constexpr (kHasScales) {
      if (format_.has_fp8_rope) {
        typename Op::Raw raw;
        Op::fetch_keys(at, format_.rope_offset_bytes, raw);
        Op::convert_keys(raw, words);
        start<KeyProduct>(words, q, part, true);
        return;
      }
    }
    using Rope = Operands<DType::bf16>;
    if constexpr (kHasScales) {
      Rope::fetch_spaced(at + format_.rope_offset_bytes, words);
    } else {
      Rope::fetch_keys(at, FewRowsConfig::kBlocks * kConfig.block_pitch(), words);
    }
    start<RowWgmma<DType::bf16, kConfig.rows>>(words, q, part, kHasScales);
  }

  __device__ static void add(int group, const KeyScales& scales, Sums& part, Sums& scores) {
    pin(part);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const float scaled = part[i] * scales.latent[i / 2 % 2][group];
      scores[i] = group == 0 ? scaled : scores[i] + scaled;
    }
  }

  const LatentRowFormat& format_;
  Shared& shared_;
};

}  // namespace quire::cuda::hopper
