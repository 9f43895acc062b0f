// SPDX-License-Identifier: Apache-2.0
// Runs of GGUF blocks (core/block_format.h, docs/layouts.md), as fp32. A block's length is a multiple of 2 and no more, so
// bytes come in pairs at best; that of mxfp4 is odd.
#pragma once

#include "core/block_format.h"
#include "cuda/any/fused_qkv_matmul/params.h"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

template <typename T> __device__ inline T load_as(const std::byte* from) {
  return __ldg(reinterpret_cast<const T*>(from));
}

__device__ inline unsigned load_byte(const std::byte* from) {
  return load_as<unsigned char>(from);
}

__device__ inline unsigned load_pair(const std::byte* from, bool is_even) {
  return is_even ? unsigned{load_as<unsigned short>(from)}
                 : load_byte(from) | load_byte(from + 1) << 8;
}

__device__ inline float load_half(const std::byte* from, bool is_even) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(load_pair(from, is_even))));
}

// Eight neighbouring bytes, one per column of a run.
struct RunBytes {
  unsigned pairs[kRun / 2];

  __device__ RunBytes(const std::byte* from, bool is_even) {
#pragma unroll
    for (int i = 0; i < kRun / 2; ++i) pairs[i] = load_pair(from + 2 * i, is_even);
  }
  __device__ int operator[](int i) const {
    return static_cast<int>(pairs[i / 2] >> (8 * (i % 2)) & 0xffu);
  }
};

// Four numbers of a table as the bytes of a word.
constexpr unsigned table_word(const BlockFormat& format, int first) {
  unsigned word = 0;
  for (int i = 0; i < 4; ++i) {
    word |= unsigned{static_cast<unsigned char>(format.values[first + i])} << (8 * i);
  }
  return word;
}

// values[code] of a table in four registers: PRMT looks up eight bytes, the code's upper bit chooses between two.
template <WeightFormat kFormat> __device__ inline int table_number(unsigned code) {
  constexpr unsigned kWords[4] = {
      table_word(block_format(kFormat), 0), table_word(block_format(kFormat), 4),
      table_word(block_format(kFormat), 8), table_word(block_format(kFormat), 12)};
  const unsigned low = __byte_perm(kWords[0], kWords[1], code & 7u);
  const unsigned high = __byte_perm(kWords[2], kWords[3], code & 7u);
  return static_cast<signed char>((code & 8u) != 0 ? high : low);
}

// d of the block: 2^(e − 128) has two subnormal values.
template <WeightFormat kFormat>
__device__ inline float load_scale(const std::byte* block, bool is_even) {
  constexpr BlockFormat kBlock = block_format(kFormat);
  if constexpr (!kBlock.is_e8m0) {
    return load_half(block + kBlock.scale_at, is_even);
  } else {
    const unsigned e = load_byte(block + kBlock.scale_at);
    return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  }
}

// Blocks of 32 columns.
template <WeightFormat kFormat>
__device__ inline void load_block_32(const std::byte* row, int column, bool is_even,
                                     float (&v)[kRun]) {
  constexpr BlockFormat kBlock = block_format(kFormat);
  const std::byte* block = row + column / 32 * std::int64_t{kBlock.bytes};
  const int within = column % 32;
  is_even = is_even && kBlock.bytes % 2 == 0;
  const float d = load_scale<kFormat>(block, is_even);
  constexpr bool kHasMins = kBlock.min_at >= 0;
  float m = 0.0f;
  if constexpr (kHasMins) m = load_half(block + kBlock.min_at, is_even);
  unsigned high = 0;
  if constexpr (kBlock.high_at >= 0) high = load_byte(block + kBlock.high_at + within / 8);
  const RunBytes codes(block + kBlock.codes_at + within % (kBlock.code_bits == 8 ? 32 : 16),
                       is_even);
  const int shift = within < 16 ? 0 : 4;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    int number = codes[i] >> shift & 15;
    if constexpr (kBlock.code_bits == 8) {
      number = static_cast<signed char>(codes[i]);
    } else if constexpr (kBlock.has_table) {
      number = table_number<kFormat>(static_cast<unsigned>(number));
    } else {
      if constexpr (kBlock.high_at >= 0) number |= static_cast<int>(high >> i & 1u) << 4;
      number -= kBlock.zero;
    }
    v[i] =
        kBlock.has_mins() ? fmaf(d, static_cast<float>(number), m) : d * static_cast<float>(number);
  }
}

// q4_k, q5_k: the latter's 32 bytes of high bits stand before the codes.
template <WeightFormat kFormat>
__device__ inline void load_k_with_mins(const std::byte* row, int column, bool is_even,
                                        float (&v)[kRun]) {
  constexpr bool kHasHigh = kFormat == WeightFormat::q5_k;
  const std::byte* block = row + column / 256 * std::int64_t{block_format(kFormat).bytes};
  const int group = column % 256 / 32;
  const std::byte* packed = block + 4;
  unsigned scale = load_byte(packed + group % 4);
  unsigned minimum = load_byte(packed + group % 4 + 4);
  if (group < 4) {
    scale &= 63u;
    minimum &= 63u;
  } else {
    const unsigned low = load_byte(packed + group + 4);
    scale = (low & 15u) | scale >> 6 << 4;
    minimum = low >> 4 | minimum >> 6 << 4;
  }
  const float d = load_half(block, is_even) * static_cast<float>(scale);
  const float offset = load_half(block + 2, is_even) * static_cast<float>(minimum);
  const std::byte* codes_at = block + (kHasHigh ? 48 : 16);
  const RunBytes codes(codes_at + group / 2 * 32 + column % 32, is_even);
  const RunBytes high(kHasHigh ? block + 16 + column % 32 : codes_at, is_even);
  const int shift = 4 * (group % 2);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    int code = codes[i] >> shift & 15;
    if constexpr (kHasHigh) code |= (high[i] >> group & 1) << 4;
    v[i] = fmaf(d, static_cast<float>(code), -offset);
  }
}

__device__ inline void load_q6_k(const std::byte* row, int column, bool is_even, float (&v)[kRun]) {
  const std::byte* block = row + column / 256 * std::int64_t{210};
  const int within = column % 256;
  const int half = within / 128;
  const int quarter = within % 128 / 32;  // 32 columns that share bit positions
  const auto scale = static_cast<signed char>(load_byte(block + 192 + within / 16));
  const float d = load_half(block + 208, is_even) * static_cast<float>(scale);
  const RunBytes low(block + half * 64 + quarter % 2 * 32 + within % 32, is_even);
  const RunBytes high(block + 128 + half * 32 + within % 32, is_even);
  const int shift = quarter < 2 ? 0 : 4;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const int code = (low[i] >> shift & 15) | (high[i] >> (2 * quarter) & 3) << 4;
    v[i] = d * static_cast<float>(code - 32);
  }
}

// Columns [column, column + kRun) of a row of blocks.
template <WeightFormat kFormat>
__device__ inline void load_blocks(const std::byte* row, int column, bool is_even,
                                   float (&v)[kRun]) {
  if constexpr (kFormat == WeightFormat::q6_k) {
    load_q6_k(row, column, is_even, v);
  } else if constexpr (block_format(kFormat).columns == 256) {
    load_k_with_mins<kFormat>(row, column, is_even, v);
  } else {
    load_block_32<kFormat>(row, column, is_even, v);
  }
}

}  // namespace quire::cuda::any::fused_qkv_matmul
