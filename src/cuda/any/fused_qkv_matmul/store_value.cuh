// SPDX-License-Identifier: Apache-2.0
// From fp32 sums to Q, to the pages, or to the rows that wait for their encoding.
#pragma once

#include "cuda/any/fused_qkv_matmul/load_operands.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/vec8.cuh"

namespace quire::cuda::any::fused_qkv_matmul {

inline constexpr int kFour = 4;

struct OutputTarget {
  std::byte* address = nullptr;  // null: the value goes nowhere
  DType dtype = DType::f32;
};

// The K row of head 0; null where the token has no page, or where rows do not go to the pages yet.
__device__ inline std::byte* key_row_of(const GeneralOutputs& outputs, int token) {
  if (token >= outputs.tokens || outputs.rows != nullptr) return nullptr;
  return first_row(outputs.keys, place_of_token(outputs.row_offsets, outputs.keys.cache_lengths,
                                                outputs.keys.batch, token));
}

__device__ inline OutputTarget target_of(const GeneralOutputs& outputs, int token, int column,
                                         std::byte* key_row) {
  if (token >= outputs.tokens || column >= outputs.columns) return {};
  if (column < outputs.q_dim) {
    return {outputs.q + token * outputs.q_stride_bytes +
                std::int64_t{column} * (bits(outputs.q_dtype) / 8),
            outputs.q_dtype};
  }
  int within = column - outputs.q_dim;
  if (outputs.rows != nullptr) {
    float* row = outputs.rows + std::int64_t{token} * (outputs.columns - outputs.q_dim);
    return {reinterpret_cast<std::byte*>(row + within), DType::f32};
  }
  if (key_row == nullptr) return {};
  std::byte* row = key_row;
  if (within >= outputs.kv_dim) {
    within -= outputs.kv_dim;
    row += outputs.value_offset_bytes;
  }
  const int head_dim = outputs.kv_dim / outputs.keys.num_heads;
  const int head = within / head_dim;
  return {row + head * outputs.keys.head_stride_bytes +
              (within - head * head_dim) * (bits(outputs.kv_dtype) / 8),
          outputs.kv_dtype};
}

__device__ inline unsigned i8_code(float value) {
  const int whole = isnan(value) ? 0 : __float2int_rn(fminf(fmaxf(value, -128.0f), 127.0f));
  return static_cast<unsigned>(whole) & 0xffu;
}

__device__ inline void store_one(const OutputTarget& to, float value) {
  switch (to.dtype) {
    case DType::f32:
      *reinterpret_cast<float*>(to.address) = value;
      return;
    case DType::f16:
      *reinterpret_cast<__half*>(to.address) = __float2half_rn(value);
      return;
    case DType::bf16:
      *reinterpret_cast<__nv_bfloat16*>(to.address) = __float2bfloat16_rn(value);
      return;
    case DType::i8:
      *reinterpret_cast<unsigned char*>(to.address) = static_cast<unsigned char>(i8_code(value));
      return;
    default:
      *reinterpret_cast<unsigned char*>(to.address) = __nv_cvt_float_to_fp8(
          value, __NV_SATFINITE, to.dtype == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2);
  }
}

__device__ inline void store_vector(const OutputTarget& to, const float (&v)[kFour]) {
  switch (to.dtype) {
    case DType::f32:
      *reinterpret_cast<float4*>(to.address) = {v[0], v[1], v[2], v[3]};
      return;
    case DType::f16:
      *reinterpret_cast<uint2*>(to.address) = {pack_f16(v[0], v[1]), pack_f16(v[2], v[3])};
      return;
    case DType::bf16:
      *reinterpret_cast<uint2*>(to.address) = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
      return;
    case DType::i8:
      *reinterpret_cast<unsigned*>(to.address) =
          i8_code(v[0]) | i8_code(v[1]) << 8 | i8_code(v[2]) << 16 | i8_code(v[3]) << 24;
      return;
    default:
      *reinterpret_cast<unsigned*>(to.address) =
          pack_fp8(v[0], v[1], v[2], v[3], to.dtype == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2);
  }
}

// Columns [column, column + 4) of a token, column a multiple of 4.
__device__ inline void store_four(const GeneralOutputs& outputs, int token, int column,
                                  std::byte* key_row, const float (&v)[kFour]) {
  const OutputTarget first = target_of(outputs, token, column, key_row);
  const int vector_bytes = kFour * bits(first.dtype) / 8;
  if (outputs.has_whole_fours &&
      reinterpret_cast<std::uintptr_t>(first.address) % vector_bytes == 0) {
    if (first.address != nullptr) store_vector(first, v);
    return;
  }
#pragma unroll
  for (int i = 0; i < kFour; ++i) {
    const OutputTarget to = target_of(outputs, token, column + i, key_row);
    if (to.address != nullptr) store_one(to, v[i]);
  }
}

__device__ inline float bias_of(const GeneralOutputs& outputs, int column) {
  if (outputs.bias == nullptr || column >= outputs.columns) return 0.0f;
  return load_float(outputs.bias, outputs.bias_dtype, column);
}

}  // namespace quire::cuda::any::fused_qkv_matmul
