// SPDX-License-Identifier: Apache-2.0
// A warpgroup's products: scores of a tile's 64 keys, and sums of 512 value columns × its heads. The
// operands are decoded into registers two steps at a time, while the two before are multiplied.
#pragma once

#include "cuda/common/thread/thread.cuh"
#include "cuda/common/thread/warp_reduce.cuh"
#include "cuda/sm90/sparse_mla/fp8/shared.cuh"
#include "cuda/sm90/sparse_mla/row_fill.cuh"

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

// The softmax over keys that are rows: a thread has two keys (8 apart) and, of every eight heads, two.
//
// Weights are f16 and carry their key's power of two, 2^exponent, since that is what its values are
// multiplied by: base follows the largest (score + exponent) of a head, so that nothing leaves f16's
// range whatever the scales. Sums of weights leave it out again. A head's base follows its maximum only
// when a weight would pass 2^14; the warpgroup votes on that at the barrier that it needs anyway.

// A barrier of one warpgroup that tells all whether one of them said yes. Below the barriers of
// NamedBarrier.
__device__ inline bool vote_any(int warpgroup, bool is_so) {
  std::uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.or.pred q, %2, 128, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}\n"
      : "=r"(any)
      : "r"(static_cast<std::uint32_t>(is_so)), "r"(warpgroup + 1)
      : "memory");
  return any != 0;
}

template <typename Variant> struct ColumnSoftmax {
  static constexpr Fp8Config kConfig = Variant::kConfig;
  static constexpr int kColumns = kConfig.thread_heads();
  static constexpr int kScores = 2 * kColumns;
  static constexpr float kNoBase = -3.402823466e38F;  // below every score, and no infinity
  static constexpr float kSet = 6.0F;    // the largest weight is 2^6 when a base is set,
  static constexpr float kRise = 14.0F;  // and never more than 2^14

  float* bases;           // of the warpgroup's heads, in powers of two; in shared memory
  float total[kColumns];  // of the weights of this thread's keys

  // Before a barrier of the warpgroup.
  __device__ void reset() {
    const auto thread = static_cast<int>(threadIdx.x % Fp8Config::kWarpgroup);
    if (thread < kConfig.heads) bases[thread] = kNoBase;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) total[c] = 0.0F;
  }

  // Column c of a thread is head 8 (c / 2) + 2 (lane % 4) + c % 2; scores[4j + 2i + e] is of key i and
  // column 2j + e.
  __device__ static int head_of(int column) {
    return column / 2 * 8 + static_cast<int>(threadIdx.x % 4) * 2 + column % 2;
  }

  // Products into powers of two; returns whether one is too large for its base.
  __device__ bool place(float (&scores)[kScores], const KeyFactors (&keys)[2],
                        const bool (&is_there)[2], float to_log2,
                        const float* query_factors) const {
    const float by[2] = {keys[0].score * to_log2, keys[1].score * to_log2};
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) {
      const float2 heads = *reinterpret_cast<const float2*>(query_factors + head_of(2 * j));
      const float2 base = *reinterpret_cast<const float2*>(bases + head_of(2 * j));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float& score = scores[4 * j + k];
        const int i = k / 2;
        const float power = fmaf(score * (k % 2 == 0 ? heads.x : heads.y), by[i], keys[i].exponent);
        score = is_there[i] ? power : -INFINITY;
        most = fmaxf(most, score - (k % 2 == 0 ? base.x : base.y));
      }
    }
    return most > kRise;
  }

  // Their weights, stored as rows of heads; added: this tile's part of the totals.
  __device__ void weigh(const float (&scores)[kScores], const KeyFactors (&keys)[2],
                        std::byte* weights, float (&added)[kColumns]) const {
    std::uint32_t words[kColumns];  // [i][j]: as four matrices of 8 keys × 8 heads lie
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) {
      const float2 base = *reinterpret_cast<const float2*>(bases + head_of(2 * j));
      float parts[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        parts[k] = exp2_approx(scores[4 * j + k] - (k % 2 == 0 ? base.x : base.y));
      }
      added[2 * j] = fmaf(parts[0], keys[0].unit, parts[2] * keys[1].unit);
      added[2 * j + 1] = fmaf(parts[1], keys[0].unit, parts[3] * keys[1].unit);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        words[2 * j + i] = pack_pair<DType::f16>(parts[2 * i] * keys[i].mantissa,
                                                 parts[2 * i + 1] * keys[i].mantissa);
      }
    }
    store(words, weights);
  }

  // New bases; keep: what to multiply earlier sums by. By the whole warpgroup.
  template <typename Sync>
  __device__ void rise(const float (&scores)[kScores], float (*tops)[kConfig.heads],
                       float (&keep)[kColumns], const Sync& sync) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const auto warp = static_cast<int>(threadIdx.x / 32 % Fp8Config::kWarps);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int at = c / 2 * 4 + c % 2;
      const float top = column_max(fmaxf(scores[at], scores[at + 2]));
      if (lane < 4) tops[warp][head_of(c)] = top;
    }
    sync();
    float risen[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int head = head_of(c);
      const float top =
          fmaxf(fmaxf(tops[0][head], tops[1][head]), fmaxf(tops[2][head], tops[3][head]));
      const float base = bases[head];
      risen[c] = top - base > kSet ? top - kSet : base;
      keep[c] = exp2_approx(base - risen[c]);
      total[c] *= keep[c];
    }
    sync();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (warp == 0 && lane < 4) bases[head_of(c)] = risen[c];
    }
    sync();
  }

 private:
  // A warp's 16 keys × all heads, transposed on the way.
  __device__ static void store(const std::uint32_t (&words)[kColumns], std::byte* weights) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const auto warp = static_cast<int>(threadIdx.x / 32 % Fp8Config::kWarps);
    // Lane l names head l % 8 of matrix l / 8: keys 8 (l / 8 % 2), heads 8 (l / 16).
    const int head = lane / 16 * 8 + lane % 8;
    const int chunk = warp * 2 + lane / 8 % 2;
    const auto to = static_cast<std::uint32_t>(
        __cvta_generic_to_shared(weights + head * kRowBytes + ((chunk ^ (head % 8)) * 16)));
#pragma unroll
    for (int j = 0; j < kColumns; j += 4) {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       to + j / 4 * 16 * kRowBytes),
                   "r"(words[j]), "r"(words[j + 1]), "r"(words[j + 2]), "r"(words[j + 3])
                   : "memory");
    }
  }
};

}  // namespace quire::cuda::sm90::sparse_mla
