// SPDX-License-Identifier: Apache-2.0
// Rows in shared memory become A operands of warpgroup products: 64 keys × 64 columns for the scores, 64 columns × 64 keys
// for the values.
//
// e4m3 becomes f16, exactly. A fetched word of K has four neighbouring columns of a key where the instruction wants two and
// two, eight apart. Nothing is moved: the columns of q stand in the same order (load_units.cuh).
#pragma once

#include "cuda/common/mma/warp_mma.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

inline constexpr int kOperandWords = 16;  // of a thread, for 64 × 64

// Four of e4m3 as two pairs of f16, exactly.
__device__ inline void f16_pairs(std::uint32_t four, std::uint32_t& low, std::uint32_t& high) {
  asm("{\n"
      ".reg .b16 l, h;\n"
      "mov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\n"
      "cvt.rn.f16x2.e4m3x2 %1, h;\n"
      "}"
      : "=r"(low), "=r"(high)
      : "r"(four));
}

// Keys of a unit × 64 columns. Those of e4m3 are fetched first and converted later, so that one runs ahead.
template <SwapAbKind kKind> struct KeyOperands {
  using Rows = UnitRows<kKind>;
  using Raw = std::uint32_t[8];
  using Words = std::uint32_t[kOperandWords];

  // A lane's place in a unit; others are further along its row.
  __device__ static int place(int lane) { return Rows::offset(lane % 16, lane / 16); }

  // Columns from split `chunk` of the rows on.
  __device__ static void fetch_bf16(const std::byte* unit, int place, int chunk, Words& words) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      fetch_four(unit + Rows::further(place, chunk + 2 * step), &words[4 * step]);
    }
  }
  __device__ static void fetch_fp8(const std::byte* unit, int place, int chunk, Raw& raw) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      fetch_four(unit + Rows::further(place, chunk + 2 * i), &raw[4 * i]);
    }
  }
  // Rope columns of rows that have no others than e4m3.
  __device__ static void fetch_tail(const std::byte* unit, Raw& raw) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      fetch_four(unit + Rows::tail(lane % 16, lane / 16 + 2 * i), &raw[4 * i]);
    }
  }
  __device__ static void convert(const Raw& raw, Words& words) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t* a = &words[4 * step];
      f16_pairs(raw[2 * step], a[0], a[2]);
      f16_pairs(raw[2 * step + 1], a[1], a[3]);
    }
  }

 private:
  __device__ static void fetch_four(const std::byte* at, std::uint32_t* words) {
    std::uint32_t four[4];
    load_matrices(at, four);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = four[i];
  }
};

// Values of a tile × 64 columns, in the same way.
template <SwapAbKind kKind> struct ValueOperands {
  static constexpr DType kElement = DType::f16;
  using Rows = UnitRows<kKind>;
  using Raw = std::uint32_t[8];
  static constexpr int kUnits = 2;        // that a lane has rows of
  static constexpr int kBlockChunks = 4;  // from 64 columns to the next

  // Unit `index` of these, and the place in it of the warp's first 16 columns.
  __device__ static int unit(int index, int lane) { return 2 * index + lane / 16; }
  __device__ static int place(int warp, int lane) { return Rows::offset(lane % 16, warp); }

  // `block`: of 64 columns, from those at `place` on.
  __device__ static void fetch(const std::byte* const (&units)[kUnits], int place, int block,
                               Raw& raw) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      std::uint32_t four[4];
      load_transposed(units[i] + Rows::further(place, kBlockChunks * block), four);
#pragma unroll
      for (int j = 0; j < 4; ++j) raw[4 * i + j] = four[j];
    }
  }
  // Row r of the products' 16 of a warp is column 2r of its 16, row r + 8 the one after it.
  __device__ static void convert(const Raw& raw, std::uint32_t (&words)[kOperandWords]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t* a = &words[4 * step];
      f16_pairs(__byte_perm(raw[2 * step], raw[2 * step + 1], 0x6420), a[0], a[2]);
      f16_pairs(__byte_perm(raw[2 * step], raw[2 * step + 1], 0x7531), a[1], a[3]);
    }
  }
};

// Nothing is left to be converted.
template <> struct ValueOperands<SwapAbKind::bf16> {
  static constexpr DType kElement = DType::bf16;
  using Rows = UnitRows<SwapAbKind::bf16>;
  using Raw = std::uint32_t[kOperandWords];
  static constexpr int kUnits = 4;
  static constexpr int kBlockChunks = 8;

  __device__ static int unit(int index, int) { return index; }
  __device__ static int place(int warp, int lane) {
    return Rows::offset(lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2);
  }
  __device__ static void fetch(const std::byte* const (&units)[kUnits], int place, int block,
                               Raw& words) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t four[4];
      load_transposed(units[step] + Rows::further(place, kBlockChunks * block), four);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[4 * step + i] = four[i];
    }
  }
};

// sums (+)= 64 × 64 of registers · a swizzle column of 64 columns of q, or of as many keys' weights. kRows: of q.
template <DType kElement, int kRows>
__device__ inline void start_product(std::uint32_t (&words)[kOperandWords],
                                     std::uint32_t swizzle_column, float (&sums)[kRows / 2],
                                     bool starts_sum) {
  pin(words);
  cute::warpgroup_arrive();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    detail::issue<RowWgmma<kElement, kRows>>(
        &words[4 * step], descriptor(swizzle_column + (step * kStepBytes >> 4), kRowsHigh), sums,
        starts_sum && step == 0 ? cute::SM90::GMMA::ScaleOut::Zero
                                : cute::SM90::GMMA::ScaleOut::One,
        std::make_index_sequence<kRows / 2>{});
  }
  cute::warpgroup_commit_batch();
}

// 64 keys × the query rows of a work tile: the products of the scores. While the tensor cores have 64
// columns, the next 64 are fetched and converted.

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
