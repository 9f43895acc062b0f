// SPDX-License-Identifier: Apache-2.0
// w(row, …) of every format, a run at a time. The switch on the format is uniform over the grid.
#pragma once

#include "cuda/any/fused_qkv_matmul/load_gguf.cuh"
#include "cuda/any/fused_qkv_matmul/load_number.cuh"
#include "cuda/common/matmul/int4/pack_order.h"

namespace quire::cuda::any::fused_qkv_matmul {

inline constexpr int kMiddleCode = 8;  // the zero point of a weight without zero points

__device__ inline float weight_scale(const WeightOperand& w, int row, int column) {
  return load_float(w.scale, w.scale_dtype,
                    row / w.rows_per_scale * w.scale_row_stride +
                        column / w.columns_per_scale * w.scale_column_stride);
}

__device__ inline int nibble(unsigned word, int index) {
  return static_cast<int>(word >> (4 * index) & 15u);
}

// AWQ interleaves: of eight rows, nibble 0 is row 0, nibble 1 is row 2, …
__device__ inline int awq_nibble(int row) {
  return row % 8 / 2 + row % 2 * 4;
}

__device__ inline int zero_point(const WeightOperand& w, int row, int column) {
  if (w.zeros == nullptr) return kMiddleCode;
  const std::int64_t group = column / w.columns_per_scale * w.zeros_column_stride;
  if (w.format == WeightFormat::int4) {
    return load_as<unsigned char>(w.zeros + row * w.zeros_row_stride + group);
  }
  const auto word = load_as<unsigned>(w.zeros + 4 * (row / 8 * w.zeros_row_stride + group));
  if (w.format == WeightFormat::awq) return nibble(word, awq_nibble(row));
  return nibble(word, row % 8) + (w.format == WeightFormat::gptq ? 1 : 0);
}

// Eight codes of a row, the first in the lowest bits.
__device__ inline unsigned load_codes(const WeightOperand& w, int row, int column) {
  if (w.format == WeightFormat::int4) {
    const std::byte* from = w.data + row * w.stride_bytes + column / 2;
    if (w.has_vectors) return load_as<unsigned>(from);
    return load_pair(from, false) | load_pair(from + 2, false) << 16;
  }
  if (w.format != WeightFormat::awq) {
    return load_as<unsigned>(w.data + column / 8 * w.stride_bytes + std::int64_t{4} * row);
  }
  const std::byte* from = w.data + column * w.stride_bytes + row / 8 * std::int64_t{4};
  unsigned codes = 0;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    codes |= (load_as<unsigned>(from + i * w.stride_bytes) >> (4 * awq_nibble(row)) & 15u)
             << (4 * i);
  }
  return codes;
}

// int4, gptq, gptq_v2, awq.
__device__ inline void load_groups(const WeightOperand& w, int row, int column, float (&v)[kRun]) {
  const unsigned codes =
      w.is_packed ? unpack_codes(w.data, w.order, row, column) : load_codes(w, row, column);
  const int zero =
      w.is_packed ? packed_zero(w.data, w.order, row, column) : zero_point(w, row, column);
  const float scale = w.is_packed
                          ? load_float(packed_scale(w.data, w.order, row, column), w.scale_dtype, 0)
                          : weight_scale(w, row, column);
#pragma unroll
  for (int i = 0; i < kRun; ++i) v[i] = static_cast<float>(nibble(codes, i) - zero) * scale;
}

// dense, fp8.
__device__ inline void load_numbers(const WeightOperand& w, int row, int column, float (&v)[kRun]) {
  load_dense(w.data + row * w.stride_bytes, w.dtype, column, w.columns, w.has_vectors, v);
  if (w.format == WeightFormat::fp8) multiply(v, weight_scale(w, row, column));
}

__device__ inline void load_blocks(const WeightOperand& w, int row, int column, float (&v)[kRun]) {
  const std::byte* start = w.data + row * w.stride_bytes;
  switch (w.format) {
    case WeightFormat::q4_0:
      return load_q4_0(start, column, w.has_vectors, v);
    case WeightFormat::q8_0:
      return load_q8_0(start, column, w.has_vectors, v);
    case WeightFormat::q4_k:
      return load_q4_k(start, column, w.has_vectors, v);
    default:
      return load_q6_k(start, column, w.has_vectors, v);
  }
}

// Columns [column, column + kRun) of a row of W; zeros outside. A format's family is fixed for the
// kernels that name it; `any` asks at run time.
enum class WeightFamily : std::uint8_t { numbers, groups, blocks, any };

__host__ __device__ constexpr WeightFamily family_of(WeightFormat format) {
  return format <= WeightFormat::fp8   ? WeightFamily::numbers
         : format <= WeightFormat::awq ? WeightFamily::groups
                                       : WeightFamily::blocks;
}

template <WeightFamily kFamily>
__device__ inline void load_weight(const WeightOperand& w, int row, int column, float (&v)[kRun]) {
  if (row >= w.rows || column >= w.columns) return set_zero(v);
  const WeightFamily family = kFamily == WeightFamily::any ? family_of(w.format) : kFamily;
  if (family == WeightFamily::numbers) return load_numbers(w, row, column, v);
  if (family == WeightFamily::groups) return load_groups(w, row, column, v);
  load_blocks(w, row, column, v);
}

}  // namespace quire::cuda::any::fused_qkv_matmul
