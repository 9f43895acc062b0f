// SPDX-License-Identifier: Apache-2.0
// What the kernels of store_index_keys and quantize_index_queries receive.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/rows/divisor.h"
#include "cuda/common/runtime/device_facts.h"
#include "quire/kv_layer_view.h"
#include "quire/ops/quantize_fp8.h"

namespace quire::cuda::any::index_rows {

// f32, f16 or bf16 [columns]; null: absent.
struct IndexRowVector {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
};

// Raw rows [tokens, heads, columns], and what happens to each of them before it is quantized.
struct IndexRowParams {
  const std::byte* x;
  DType x_dtype;
  std::int64_t token_bytes;
  std::int64_t head_bytes;
  std::int64_t tokens;
  Divisor heads;
  int columns;
  const std::uint32_t* row_offsets;    // [batch + 1]
  const std::uint32_t* cache_lengths;  // [batch]
  std::int64_t batch;
  IndexRowVector norm_weight;  // absent: no LayerNorm
  IndexRowVector norm_bias;
  float epsilon;
  const std::byte* freqs;  // [max_pos, rope_dim], null: no rope
  DType freqs_dtype;
  std::int64_t freqs_stride;  // elements
  int freqs_size;             // bytes of one
  std::int64_t max_pos;
  int rope_dim;
  bool interleaved;
  bool hadamard;
  float hadamard_factor;  // columns^-½, or 1 without Hadamard
  ScaleRounding rounding;
};

// Codes and scales go to the rows of a cache.
struct KeyTarget {
  KvLayerView view;
  int codes_offset;  // bytes, from the start of a row
  int scale_offset;  // in the row; -1: in the scales tensor
  Divisor page_size;
};

// Codes go to a tensor [tokens, heads, columns], scales times gate and factor to [tokens, heads].
struct QueryTarget {
  std::byte* out;
  std::int64_t out_token_bytes;
  std::int64_t out_head_bytes;
  float* q_scale;
  std::int64_t scale_token_stride;  // elements
  std::int64_t scale_head_stride;
  const std::byte* weights;  // null: 1
  DType weights_dtype;
  std::int64_t weights_token_stride;  // elements
  std::int64_t weights_head_stride;
  float factor;
};

// Rows of 64 or 128 columns in aligned vectors of eight, none or half of them rotated.
bool takes_vectors(const IndexRowParams& params);
bool takes_vectors(const KeyTarget& target);
bool takes_vectors(const QueryTarget& target);
// Rows whose codes stand in aligned vectors of sixteen.
bool takes_runs(const KeyTarget& target);
// Keys in such vectors that TMA can bring: the kernel of sm90/index_rows takes them, launch_general() all others.
bool takes_stages(const IndexRowParams& params, const KeyTarget& target, ComputeCapability found);

struct IndexRowLaunch {
  cudaStream_t stream;
  int num_sms;
};

void launch_vectors(const IndexRowParams& params, const QueryTarget& target,
                    const IndexRowLaunch& launched);
// Of both targets.
template <typename Target>
void launch_general(const IndexRowParams& params, const Target& target, cudaStream_t stream);

}  // namespace quire::cuda::any::index_rows
