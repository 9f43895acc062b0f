// SPDX-License-Identifier: Apache-2.0
// Runs of GGUF blocks (the layouts: src/reference/gguf.cpp). A block's length is a multiple of 2 and
// no more, so bytes come in pairs at best.
#pragma once

#include "cuda/any/fused_qkv_matmul/load_number.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

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

__device__ inline void load_q4_0(const std::byte* row, int column, bool is_even, float (&v)[kRun]) {
  const std::byte* block = row + column / 32 * std::int64_t{18};
  const int within = column % 32;
  const float d = load_half(block, is_even);
  const RunBytes codes(block + 2 + within % 16, is_even);
  const int shift = within < 16 ? 0 : 4;
#pragma unroll
  for (int i = 0; i < kRun; ++i) v[i] = d * static_cast<float>((codes[i] >> shift & 15) - 8);
}

__device__ inline void load_q8_0(const std::byte* row, int column, bool is_even, float (&v)[kRun]) {
  const std::byte* block = row + column / 32 * std::int64_t{34};
  const float d = load_half(block, is_even);
  const RunBytes codes(block + 2 + column % 32, is_even);
#pragma unroll
  for (int i = 0; i < kRun; ++i) v[i] = d * static_cast<float>(static_cast<signed char>(codes[i]));
}

__device__ inline void load_q4_k(const std::byte* row, int column, bool is_even, float (&v)[kRun]) {
  const std::byte* block = row + column / 256 * std::int64_t{144};
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
  const RunBytes codes(block + 16 + group / 2 * 32 + column % 32, is_even);
  const int shift = 4 * (group % 2);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    v[i] = fmaf(d, static_cast<float>(codes[i] >> shift & 15), -offset);
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

}  // namespace quire::cuda::any::fused_qkv_matmul
