// SPDX-License-Identifier: Apache-2.0
// A warpgroup's products: scores of a tile's 64 keys, and sums of 512 value columns × its heads. The
// operands are decoded into registers two steps at a time, while the two before are multiplied.
#pragma once

#include "cuda/common/thread/opaque.cuh"
#include "cuda/sm90/sparse_mla/decode_rows.cuh"
#include "cuda/sm90/sparse_mla/fp8/key_factors.cuh"
#include "cuda/sm90/sparse_mla/fp8/shared.cuh"

namespace quire::cuda::sm90::sparse_mla {

// The rope columns of a tile. As e4m3 they are few enough to be fetched pair by pair, in their order.
struct RopeRows {
  const std::byte* rows;  // of the calling warp
  int offset;             // in a row
  bool is_fp8;
};

template <typename Variant> struct TileScores {
  static constexpr Fp8Config kConfig = Variant::kConfig;
  using Latent = RowWgmma<DType::f16, kConfig.heads>;
  using Rope = RowWgmma<DType::bf16, kConfig.heads>;

  float values[kConfig.heads / 2];

  // q: the descriptor of the warpgroup's heads. Waits for the products.
  __device__ void compute(const RopeRows& rope, const OperandFactors (&keys)[2], std::uint64_t q) {
    const std::byte* rows = rope.rows + matrix_row_offset();
    std::uint32_t operands[2][8];
    std::uint32_t raw[2][4];
    std::uint32_t rope_operands[2][8];
    load_rope(rope, keys, rope_operands);
    load_matrices(rows, raw[0]);
    multiply_rope(rope_operands, q + swizzle_column(kPairs / 2));
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      if (pair + 1 < kPairs) load_matrices(rows + (pair + 1) * 32, raw[(pair + 1) % 2]);
      cute::warpgroup_wait<1>();
      const int group = pair / (kPairs / Fp8Config::kGroups);
      decode_keys(raw[pair % 2], keys[0].groups[group], keys[1].groups[group], operands[pair % 2]);
      multiply(operands[pair % 2], q + swizzle_column(pair / 2) + pair % 2 * 4);
    }
    cute::warpgroup_wait<0>();
    pin(values);
  }

 private:
  static constexpr int kPairs = SparseConfig::kLatent / 32;  // of steps of 16 columns

  __device__ static constexpr int swizzle_column(int index) {
    return index * (kConfig.query_swizzle_column_bytes() >> 4);
  }

  __device__ void multiply(std::uint32_t (&operands)[8], std::uint64_t q) {
    pin(operands);
    pin(values);
    cute::warpgroup_arrive();
    multiply_step<Latent>(&operands[0], q, values, false);
    multiply_step<Latent>(&operands[4], q + 2, values, false);
    cute::warpgroup_commit_batch();
  }
  __device__ void multiply_rope(std::uint32_t (&operands)[2][8], std::uint64_t q) {
    pin(operands[0]);
    pin(operands[1]);
    pin(values);
    cute::warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      multiply_step<Rope>(&operands[step / 2][step % 2 * 4], q + step * 2, values, step == 0);
    }
    cute::warpgroup_commit_batch();
  }

  __device__ static void load_rope(const RopeRows& rope, const OperandFactors (&keys)[2],
                                   std::uint32_t (&operands)[2][8]) {
    if (rope.is_fp8) {
      const auto lane = static_cast<int>(threadIdx.x % 32);
      const std::byte* first =
          rope.rows + lane / 4 * Fp8Config::kRowStride + rope.offset + lane % 4 * 2;
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        const int offset = k % 2 * 8 * Fp8Config::kRowStride + k / 2 * 8;
        operands[k / 8][k % 8] =
            decode_pair(*reinterpret_cast<const std::uint16_t*>(first + offset), 1.0F);
      }
      return;
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      std::uint32_t raw[4];
      load_matrices(rope.rows + matrix_row_offset() + rope.offset + step * 32, raw);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        operands[step / 2][step % 2 * 4 + k] = scale_bfloats(raw[k], keys[k % 2].rope);
      }
    }
  }
};

// Of a warp, block b of 16 columns in group p (of 128) begins at column 128 p + 32 warp + 16 b: sums
// values[2p + b]. Its even columns are rows of the product, its odd ones the eighth rows after them.
template <typename Variant> struct ValueSums {
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kBlocks = SparseConfig::kLatent / kWgmmaRows;
  static constexpr int kSums = kConfig.heads / 2;
  using Product = RowWgmma<DType::f16, kConfig.heads>;

  float values[kBlocks][kSums];

  // rows: of the calling lane's matrices, at the warp's first column; scales [group][64 keys]: at the
  // lane's first key; weights: the descriptor. read(step): this warp has read 16 keys more.
  template <typename Read>
  __device__ void add(const std::byte* rows, const std::uint16_t* scales, std::uint64_t weights,
                      bool starts_sum, const Read& read) {
    std::uint32_t operands[2][8];
    std::uint32_t raw[2][4];
    load_transposed(rows, raw[0]);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int step = turn / Fp8Config::kGroups;
      const int group = turn % Fp8Config::kGroups;
      if (turn + 1 < kTurns) load_transposed(rows + offset(turn + 1), raw[(turn + 1) % 2]);
      const std::uint16_t* by = scales + group * Fp8Config::kKeys + step * 16;
      const std::uint32_t low_by = *reinterpret_cast<const std::uint32_t*>(by);
      const std::uint32_t high_by = *reinterpret_cast<const std::uint32_t*>(by + 8);
      cute::warpgroup_wait<1>();
      decode_values(raw[turn % 2], low_by, high_by, operands[turn % 2]);
      pin(operands[turn % 2]);
      pin(values[2 * group]);
      pin(values[2 * group + 1]);
      cute::warpgroup_arrive();
      multiply_step<Product>(&operands[turn % 2][0], weights + 2 * step, values[2 * group],
                             starts_sum && step == 0);
      multiply_step<Product>(&operands[turn % 2][4], weights + 2 * step, values[2 * group + 1],
                             starts_sum && step == 0);
      cute::warpgroup_commit_batch();
      if (group == Fp8Config::kGroups - 1) read(step);
    }
  }
  __device__ void wait() {
    cute::warpgroup_wait<0>();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) pin(values[block]);
  }
  template <int kColumns> __device__ void scale(const float (&by)[kColumns]) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int k = 0; k < kSums; ++k) values[block][k] *= by[k / 4 * 2 + k % 2];
    }
  }

 private:
  static constexpr int kTurns = 4 * Fp8Config::kGroups;  // of 16 keys × 128 columns

  __device__ static constexpr int offset(int turn) {
    return turn / Fp8Config::kGroups * 16 * Fp8Config::kRowStride + turn % Fp8Config::kGroups * 128;
  }
};

}  // namespace quire::cuda::sm90::sparse_mla
