// SPDX-License-Identifier: Apache-2.0
// Runs of either operand in any format, as fp32.
#pragma once

#include "cuda/any/fused_qkv_matmul/load_blocks.cuh"
#include "cuda/any/fused_qkv_matmul/params.h"
#include "cuda/common/matmul/int4/pack_order.h"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

// Numbers of any float type from anywhere, as fp32: exact, all of them fit.

__device__ inline float fp8_value(unsigned code, __nv_fp8_interpretation_t kind) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(code), kind)));
}

__device__ inline float load_float(const std::byte* base, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return load_as<float>(base + 4 * index);
    case DType::f16:
      return __half2float(__ushort_as_half(load_as<unsigned short>(base + 2 * index)));
    case DType::bf16:
      return __uint_as_float(unsigned{load_as<unsigned short>(base + 2 * index)} << 16);
    case DType::fp8_e4m3:
      return fp8_value(load_as<unsigned char>(base + index), __NV_E4M3);
    default:
      return fp8_value(load_as<unsigned char>(base + index), __NV_E5M2);
  }
}

__device__ inline void decode_fp8(uint2 codes, __nv_fp8_interpretation_t kind, float (&v)[kRun]) {
  const unsigned words[2] = {codes.x, codes.y};
#pragma unroll
  for (int i = 0; i < kRun / 2; ++i) {
    const auto pair = static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> (16 * (i % 2)));
    const float2 values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, kind)));
    v[2 * i] = values.x;
    v[2 * i + 1] = values.y;
  }
}

// A run at an address that is aligned for one vector (f32: for two).
__device__ inline void load_vector(const std::byte* from, DType dtype, float (&v)[kRun]) {
  switch (dtype) {
    case DType::f32: {
      const float4 low = load_as<float4>(from);
      const float4 high = load_as<float4>(from + sizeof(float4));
      return Vec8<DType::f32>::decode({low, high}, v);
    }
    case DType::f16:
      return Vec8<DType::f16>::decode(load_as<uint4>(from), v);
    case DType::bf16:
      return Vec8<DType::bf16>::decode(load_as<uint4>(from), v);
    case DType::fp8_e4m3:
      return decode_fp8(load_as<uint2>(from), __NV_E4M3, v);
    default:
      return decode_fp8(load_as<uint2>(from), __NV_E5M2, v);
  }
}

// The first `count` numbers of a run, one by one; zeros after them.
template <DType kDType>
__device__ inline void load_scalars(const std::byte* from, int count, float (&v)[kRun]) {
#pragma unroll
  for (int i = 0; i < kRun; ++i) v[i] = i < count ? load_float(from, kDType, i) : 0.0f;
}

__device__ inline void load_scalars(const std::byte* from, DType dtype, int count,
                                    float (&v)[kRun]) {
  switch (dtype) {
    case DType::f32:
      return load_scalars<DType::f32>(from, count, v);
    case DType::f16:
      return load_scalars<DType::f16>(from, count, v);
    case DType::bf16:
      return load_scalars<DType::bf16>(from, count, v);
    case DType::fp8_e4m3:
      return load_scalars<DType::fp8_e4m3>(from, count, v);
    default:
      return load_scalars<DType::fp8_e5m2>(from, count, v);
  }
}

// Columns [column, column + kRun) of a dense row; zeros past its end.
__device__ inline void load_dense(const std::byte* row, DType dtype, int column, int columns,
                                  bool has_vectors, float (&v)[kRun]) {
  const std::byte* from = row + std::int64_t{column} * (bits(dtype) / 8);
  if (has_vectors && column + kRun <= columns) return load_vector(from, dtype, v);
  load_scalars(from, dtype, columns - column, v);
}

__device__ inline void set_zero(float (&v)[kRun]) {
#pragma unroll
  for (float& value : v) value = 0.0f;
}

__device__ inline void multiply(float (&v)[kRun], float factor) {
#pragma unroll
  for (float& value : v) value *= factor;
}

inline constexpr int kInputBlock = 128;  // columns that share a scale

__device__ inline float input_scale(const InputOperand& x, int token, int column) {
  return __ldg(x.scale + token * x.scale_row_stride + column / kInputBlock * x.scale_block_stride);
}

// x(token, …) for the stored weight columns [column, column + kRun), scaled; zeros outside.
__device__ inline void load_input(const InputOperand& x, int token, int column, float (&v)[kRun]) {
  if (token >= x.rows || column >= x.columns) return set_zero(v);
  const std::byte* row = x.data + token * x.stride_bytes;
  if (x.perm == nullptr) {
    load_dense(row, x.dtype, column, x.columns, x.has_vectors, v);
    if (x.scale != nullptr) multiply(v, input_scale(x, token, column));
    return;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    v[i] = 0.0f;
    if (column + i >= x.columns) continue;
    const int source = __ldg(x.perm + column + i);
    v[i] = load_float(row, x.dtype, source);
    if (x.scale != nullptr) v[i] *= input_scale(x, token, source);
  }
}

// w(row, …) of every format, a run at a time.

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

// What a kernel multiplies: any x, beside weights of a few formats that it tells apart when it runs, or of one. A kernel
// for all formats had the registers of the worst, and a switch before every run.

struct AnyInput {
  __device__ static void load_input(const InputOperand& x, int token, int column,
                                    float (&v)[kRun]) {
    fused_qkv_matmul::load_input(x, token, column, v);
  }
};

// load_weight: columns [column, column + kRun) of a row of W; zeros outside.
struct NumberOperands : AnyInput {
  __device__ static void load_weight(const WeightOperand& w, int row, int column,
                                     float (&v)[kRun]) {
    if (row >= w.rows || column >= w.columns) return set_zero(v);
    load_numbers(w, row, column, v);
  }
};

struct GroupOperands : AnyInput {
  __device__ static void load_weight(const WeightOperand& w, int row, int column,
                                     float (&v)[kRun]) {
    if (row >= w.rows || column >= w.columns) return set_zero(v);
    load_groups(w, row, column, v);
  }
};

template <WeightFormat... kFormats> struct BlockOperands : AnyInput {
  __device__ static void load_weight(const WeightOperand& w, int row, int column,
                                     float (&v)[kRun]) {
    if (row >= w.rows || column >= w.columns) return set_zero(v);
    const std::byte* from = w.data + row * w.stride_bytes;
    const auto load_if = [&]<WeightFormat kFormat>() {
      if (w.format == kFormat) load_blocks<kFormat>(from, column, w.has_vectors, v);
    };
    (load_if.template operator()<kFormats>(), ...);
  }
};

// Calls `launch` with the operands of GGUF weights of `format`. Formats that decode alike share a kernel: one for each
// would take two minutes to compile.
template <typename Launch> void with_block_operands(WeightFormat format, const Launch& launch) {
  using enum WeightFormat;
  if (format == q4_0 || format == q8_0) return launch(BlockOperands<q4_0, q8_0>{});
  if (format == q4_k || format == q5_k) return launch(BlockOperands<q4_k, q5_k>{});
  if (format == q6_k) return launch(BlockOperands<q6_k>{});
  launch(BlockOperands<q4_1, q5_0, q5_1, iq4_nl, mxfp4>{});
}

}  // namespace quire::cuda::any::fused_qkv_matmul
