// SPDX-License-Identifier: Apache-2.0
// 64 keys × the query rows of an item: the products of the scores. While the tensor cores have 64
// columns, the next 64 are fetched and converted.
#pragma once

#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/operands.cuh"

namespace quire::cuda::sm90::mla_decode {

// Of a thread's two keys. All ones, where rows have none.
template <SwapAbConfig kConfig> struct KeyScales { float of[2][kConfig.scale_groups()]; };

template <SwapAbConfig kConfig> class ScoreKeys {
 public:
  static constexpr int kSums = kConfig.rows / 2;  // of a thread, for 64 × rows
  using Sums = float[kSums];
  using Op = KeyOperands<kConfig.kind>;
  using Raw = typename Op::Raw;

  __device__ ScoreKeys(const LatentRowFormat& format, SwapAbShared<kConfig>& shared)
      : format_(format),
        shared_(shared),
        key_place_(Op::place(static_cast<int>(threadIdx.x % 32))) {}

  // `place`: of this warp's unit, which is there. The first columns of e4m3 are then on their way to registers.
  __device__ void begin(int place, Raw& raw) const {
    if constexpr (kConfig.is_fp8()) Op::fetch_fp8(shared_.units[place], key_place_, 0, raw);
  }
  // Scales are applied to the products of 128 columns, or of all of them, in fp32.
  __device__ void score(int place, Raw& raw, const KeyScales<kConfig>& scales, Sums& scores) const {
    const std::byte* unit = shared_.units[place];
    Words words[2];
    float parts[kParts][kSums];
    const std::uint32_t q = broadcast(descriptor_low(&shared_.q));
#pragma unroll
    for (int block = 0; block < SwapAbConfig::kBlocks; ++block) {
      prepare(unit, block, raw, words[block % 2]);
      start_product<kElement, kConfig.rows>(words[block % 2],
                                            q + (block * Shared::kSwizzleColumnBytes >> 4),
                                            parts[part_of(block)], starts_part(block));
      cute::warpgroup_wait<1>();
      if (kHasGroups && block % 2 == 0 && block > 0) {
        add(block / 2 - 1, scales, parts[part_of(block - 1)], scores);
      }
    }
    score_rope(unit, words[0], parts[0]);
    if constexpr (kHasGroups) {
      cute::warpgroup_wait<1>();
      add(SwapAbConfig::kScaleGroups - 1, scales, parts[1], scores);
    }
    cute::warpgroup_wait<0>();
    pin(parts[0]);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      scores[i] = kHasGroups         ? scores[i] + parts[0][i]
                  : kConfig.is_fp8() ? parts[0][i] * scales.of[i / 2 % 2][0]
                                     : parts[0][i];
    }
  }

 private:
  using Shared = SwapAbShared<kConfig>;
  using Words = typename Op::Words;
  static constexpr DType kElement = kConfig.is_fp8() ? DType::f16 : DType::bf16;
  static constexpr bool kHasGroups = kConfig.scale_groups() > 1;
  static constexpr int kParts = kHasGroups ? 2 : 1;

  // Two blocks share scales; without groups of columns, all blocks are one sum.
  __device__ static constexpr int part_of(int block) {
    return kHasGroups ? block / 2 % 2 : 0;
  }
  __device__ static constexpr bool starts_part(int block) {
    return kHasGroups ? block % 2 == 0 : block == 0;
  }

  // `raw`: the block's bytes, then the next one's.
  __device__ void prepare(const std::byte* unit, int block, Raw& raw, Words& words) const {
    if constexpr (kConfig.is_fp8()) {
      Op::convert(raw, words);
      if (block + 1 < SwapAbConfig::kBlocks) {
        Op::fetch_fp8(unit, key_place_, 4 * (block + 1), raw);
      }
    } else {
      Op::fetch_bf16(unit, key_place_, 8 * block, words);
    }
  }

  __device__ void score_rope(const std::byte* unit, Words& words, Sums& part) const {
    const std::uint32_t q = broadcast(descriptor_low(&shared_.q[SwapAbConfig::kBlocks]));
    if constexpr (kConfig.kind == SwapAbKind::fp8) {
      if (format_.has_fp8_rope) {
        Raw raw;
        Op::fetch_tail(unit, raw);
        Op::convert(raw, words);
        start_product<DType::f16, kConfig.rows>(words, q, part, kHasGroups);
        return;
      }
    }
    Op::fetch_bf16(unit, key_place_, Op::Rows::kRopeChunk, words);
    start_product<DType::bf16, kConfig.rows>(words, q, part, kHasGroups);
  }

  __device__ static void add(int group, const KeyScales<kConfig>& scales, Sums& part,
                             Sums& scores) {
    pin(part);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const float scaled = part[i] * scales.of[i / 2 % 2][group % kConfig.scale_groups()];
      scores[i] = group == 0 ? scaled : scores[i] + scaled;
    }
  }

  const LatentRowFormat& format_;
  Shared& shared_;
  const int key_place_;  // this lane's, in a unit
};

}  // namespace quire::cuda::sm90::mla_decode
