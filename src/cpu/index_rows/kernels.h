// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/rows_index.cpp offers, per target. Strides are bytes unless noted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/rows/token_place.h"
#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"

namespace quire::cpu {

// Raw rows, and what happens to each of them before it is quantized.
struct IndexRowJob {
  const std::byte* x;  // [tokens, heads, columns]
  DType dtype;
  std::int64_t token_stride;
  std::int64_t head_stride;
  std::int64_t num_heads;
  std::int64_t columns;
  const float* norm_weight;  // [columns], null: no LayerNorm
  const float* norm_bias;
  double epsilon;
  const std::byte* freqs_cis;  // [max_pos, rope_dim]: cos, sin interleaved; null: no rope
  DType freqs_dtype;
  std::int64_t freqs_stride;
  std::int64_t rope_dim;
  bool interleaved;
  bool hadamard;
  bool power_of_two;
};

struct StoreIndexKeysJob {
  IndexRowJob rows;
  std::int64_t codes_offset;  // from the start of a cache row
  std::int64_t scale_offset;  // in the row; -1: in the scales tensor
};

struct QuantizeIndexQueriesJob {
  IndexRowJob rows;
  std::byte* out;  // fp8_e4m3 [tokens, heads, columns]
  std::int64_t out_token_stride;
  std::int64_t out_head_stride;
  const std::byte* weights;  // [tokens, heads], null: 1
  DType weights_dtype;
  std::int64_t weights_token_stride;
  std::int64_t weights_head_stride;
  double factor;
  float* q_scale;                   // [tokens, heads]
  std::int64_t scale_token_stride;  // elements
  std::int64_t scale_head_stride;
};

struct IndexRowKernels {
  std::int64_t (*scratch_bytes)(const IndexRowJob& job);
  void (*widen)(DType dtype, const std::byte* values, std::int64_t count, float* wide);
  void (*store)(const StoreIndexKeysJob& job, const TokenPlace* places, std::int64_t num_places,
                std::byte* scratch);
  void (*quantize)(const QuantizeIndexQueriesJob& job, const TokenPlace* places,
                   std::int64_t num_places, std::byte* scratch);
};

const IndexRowKernels& index_row_kernels(TargetTag<Target::portable>);
const IndexRowKernels& index_row_kernels(TargetTag<Target::avx2>);
const IndexRowKernels& index_row_kernels(TargetTag<Target::avx512>);
const IndexRowKernels& index_row_kernels(TargetTag<Target::avx512_vnni>);
const IndexRowKernels& index_row_kernels(TargetTag<Target::amx>);
const IndexRowKernels& index_row_kernels(TargetTag<Target::neon>);
const IndexRowKernels& index_row_kernels(TargetTag<Target::neon_bf16>);

inline const IndexRowKernels& index_row_kernels(Target target) {
  return on_target(target,
                   [](auto tag) -> const IndexRowKernels& { return index_row_kernels(tag); });
}

}  // namespace quire::cpu
