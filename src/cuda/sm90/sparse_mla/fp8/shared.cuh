// SPDX-License-Identifier: Apache-2.0
// Shared memory of a CTA. Queries and weights stand as the tensor cores read them (rows of 128
// bytes, 128-byte swizzle), rows of the cache as they came.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/common/mma/warp_mma.cuh"
#include "cuda/common/mma/wgmma.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/sm90/sparse_mla/config.h"
#include "cuda/sm90/sparse_mla/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

struct Fp8WorkTileInfo {
  WorkTileInfo work_tile;
  int first_tiles;  // of the first stream, of work tile.num_tiles
};

template <typename Variant> struct Fp8Shared {
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kKeys = Fp8Config::kKeys;
  static constexpr int kHeads = kConfig.heads;

  // [swizzle column][head][64 columns]; when a work tile ends, half of a warpgroup's sums for the other one.
  alignas(1024) std::byte q[Fp8Config::kSwizzleColumns][kConfig.query_swizzle_column_bytes()];
  // [head][64 keys], of each warpgroup; tiles take the two in turn.
  alignas(1024) std::byte weights[2][2][kHeads * 2 * kKeys];
  alignas(16) std::byte rows[kStages][kKeys][Fp8Config::kRowStride];
  float row_scales[kStages][kKeys];                 // where they have a tensor of their own
  std::uint16_t masks[kStages][Fp8Config::kWarps];  // bit k: a warp's row k is a key
  alignas(16) std::uint16_t scales[2][2][Fp8Config::kGroups][kKeys];  // f16; as `weights`
  alignas(8) float query_factors[kHeads];
  float tops[2][Fp8Config::kWarps][kHeads];  // maxima, and at the end sums of weights
  alignas(8) float bases[2][kHeads];
  float factors[2][kHeads];  // of the finished sums
  Fp8WorkTileInfo work_tiles[2];
  int ends[2][2][Fp8Config::
                     kWarps];  // of each stream's tiles that a warp found in use; of two work tiles
  RingBarriers<2> work_tile_ring;
  EmptyBarrier attenders;
  FullBarrier rows_full[kStages];
  EmptyBarrier rows_empty[kStages][Fp8Config::kWarps];  // of each gathering warp's rows

  __device__ void init() {
    constexpr int kWarps = Fp8Config::kWarps;
    work_tile_ring.init(1, 2 * kWarps);
    attenders.init(Fp8Config::kAttenders);
    // Each warp that gathers, and each of its lanes that found a row when the scale is there.
    for (int stage = 0; stage < kStages; ++stage) {
      rows_full[stage].init(kWarps + kKeys);
      for (EmptyBarrier& empty : rows_empty[stage]) empty.init(kWarps);
    }
  }
};

// Where both warpgroups that attend meet.
struct Attenders {
  EmptyBarrier& barrier;
  std::uint32_t phase = 0;

  __device__ void sync() {
    barrier.arrive();
    barrier.wait(phase);
    phase ^= 1;
  }
};

// Named barriers.
enum Fp8Barrier : std::uint32_t { kFp8Gatherers };

// Rows in shared memory into A operands in registers: e4m3 to f16, which is exact, then times a scale.
//
// A fetched word holds four neighbouring columns of a row where the instruction wants two and two,
// eight apart: instead of moving them, the queries' columns are permuted within groups of 16
// (roles/attend.cuh). Values are fetched transposed: a row of the product is an even column, the
// eighth after it the odd one that follows.

// One step of 16: sums (+)= a · B.
template <typename Op, int kRegisters>
__device__ inline void multiply_step(const std::uint32_t* a, std::uint64_t b,
                                     float (&sums)[kRegisters], bool starts_sum) {
  detail::issue<Op>(a, b, sums,
                    starts_sum ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
                    std::make_index_sequence<kRegisters>{});
}

__device__ inline std::uint32_t scale_halves(std::uint32_t pair, std::uint32_t by) {
  std::uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(by));
  return product;
}
__device__ inline std::uint32_t scale_bfloats(std::uint32_t pair, std::uint32_t by) {
  std::uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(by));
  return product;
}

// Two e4m3 in the low and in the high half of a word, to f16. (Asked for as halves: the conversion reads
// either; a shift would cost as much again.)
__device__ inline void halves_to_f16(std::uint32_t word, std::uint32_t& low, std::uint32_t& high) {
  asm("{\n"
      ".reg .b16 l, h;\n"
      "mov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\n"
      "cvt.rn.f16x2.e4m3x2 %1, h;\n"
      "}\n"
      : "=r"(low), "=r"(high)
      : "r"(word));
}

// Where a lane's row of the four matrices stands that are fetched at a time: 16 keys, two blocks of 16
// bytes.
__device__ inline int matrix_row_offset() {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  return lane % 16 * Fp8Config::kRowStride + lane / 16 * 16;
}

// 16 keys × 32 columns: two operands, scaled row by row (low_by: row g, high_by: row g + 8; each twice).
__device__ inline void decode_keys(const std::uint32_t (&raw)[4], std::uint32_t low_by,
                                   std::uint32_t high_by, std::uint32_t* operands) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const std::uint32_t by = k % 2 == 0 ? low_by : high_by;
    std::uint32_t* operand = operands + k / 2 * 4 + k % 2;
    halves_to_f16(raw[k], operand[0], operand[2]);
    operand[0] = scale_halves(operand[0], by);
    operand[2] = scale_halves(operand[2], by);
  }
}

// 32 columns × 16 keys, transposed: two operands of 16 columns, scaled key by key (two keys each).
__device__ inline void decode_values(const std::uint32_t (&raw)[4], std::uint32_t low_by,
                                     std::uint32_t high_by, std::uint32_t* operands) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t* operand = operands + k / 2 * 4 + k % 2;
    halves_to_f16(__byte_perm(raw[k / 2 * 2], raw[k / 2 * 2 + 1], k % 2 == 0 ? 0x6420 : 0x7531),
                  operand[0], operand[2]);
    operand[0] = scale_halves(operand[0], low_by);
    operand[2] = scale_halves(operand[2], high_by);
  }
}

// The scales of a key's row, divided between operands and scores.
//
// A row is (columns of its operand) · 2^exponent · mantissa. One scale per row stays outside of the
// products altogether: nothing is rounded. Scales of 128 columns each have to enter them; they are
// brought to the top of f16's range first, by a power of two that all four share, so that a product
// keeps 11 bits.

// The bits of exponents, between those that a row's may have.
struct ScaleBits {
  // e4m3 reaches 448: scales below 2^7 keep the products finite.
  static constexpr int kRaise = 6;
  // Scales below 2^-60 count as that: a key of no length still has its share of the weights, which
  // must not vanish beside those of keys with scales of any size.
  static constexpr int kLeast = 127 - 60;

  __device__ static int of(float x) { return __float_as_int(x) >> 23 & 0xff; }
  __device__ static int of(const float4& x) {
    return max(max(of(x.x), of(x.y)), max(of(x.z), of(x.w)));
  }
  __device__ static int clamp(int bits, int most) { return min(max(bits, kLeast), most); }
  __device__ static float power_of_two(int bits) { return __int_as_float(bits << 23); }
};

// What a row's operands are multiplied by: f16 for the latent columns, bf16 for the rope columns, twice
// in a word.
struct OperandFactors {
  static constexpr std::uint32_t kOneHalves = 0x3c003c00;
  static constexpr std::uint32_t kOneBfloats = 0x3f803f80;

  std::uint32_t groups[Fp8Config::kGroups] = {kOneHalves, kOneHalves, kOneHalves, kOneHalves};
  std::uint32_t rope = kOneBfloats;

  // Four scales of 128 columns each; the rope columns have none.
  __device__ void take(const float4& scales) {
    const int bits = 254 + ScaleBits::kRaise - ScaleBits::clamp(ScaleBits::of(scales), 254);
    const float unit = ScaleBits::power_of_two(bits);
    rope = static_cast<std::uint32_t>(bits) * 0x00800080U;
    groups[0] = twice(scales.x * unit);
    groups[1] = twice(scales.y * unit);
    groups[2] = twice(scales.z * unit);
    groups[3] = twice(scales.w * unit);
  }

 private:
  __device__ static std::uint32_t twice(float x) { return pack_pair<DType::f16>(x, x); }
};

struct KeyFactors {
  float score = 1.0F;     // of the score: 2^exponent · mantissa
  float exponent = 0.0F;  // of two
  float unit = 1.0F;      // 2^-exponent
  float mantissa = 1.0F;

  // One scale of the whole row.
  __device__ void take(float scale) {
    const int bits = ScaleBits::clamp(ScaleBits::of(scale), 253);
    unit = ScaleBits::power_of_two(254 - bits);
    exponent = static_cast<float>(bits - 127);
    mantissa = scale * unit;
    score = scale;
  }
  __device__ void take(const float4& scales) {
    const int bits = ScaleBits::clamp(ScaleBits::of(scales), 254) - ScaleBits::kRaise;
    unit = ScaleBits::power_of_two(254 - bits);
    exponent = static_cast<float>(bits - 127);
    score = ScaleBits::power_of_two(bits);
  }
};

}  // namespace quire::cuda::sm90::sparse_mla
