// SPDX-License-Identifier: Apache-2.0
// One projection as its kernels see it: plain data, made once by the driver.
//
// Y [tokens, N] = X [tokens, K] · W [N, K]ᵀ. The depth K is cut into blocks of `depth_block` (and
// groups within them), whose sums are added in order; the block depends on the weight's format and
// the engine, never on the number of tokens, threads or columns or on packing, so neither does a
// single bit of the result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/block_format.h"
#include "cpu/fused_qkv_matmul/packed_layout.h"
#include "cpu/runtime/row_plan.h"
#include "quire/dtype.h"
#include "quire/kv_operand.h"

namespace quire::cpu {

enum class Codes : std::uint8_t {
  f32,
  f16,
  bf16,
  fp8_e4m3,
  fp8_e5m2,
  int4,       // two codes per byte along K
  gptq,       // eight codes per word along K
  awq,        // eight codes per word along N, interleaved
  blocks_32,  // GGUF blocks of 32 columns
  q4_k,
  q5_k,
  q6_k,
};

// W. The scale of (n, k) is scale[n / scale_rows · scale_n_stride + k / group · scale_k_stride];
// GGUF blocks carry their own.
struct WeightView {
  Codes codes;
  const BlockFormat* block;  // of GGUF weights, null: another format
  const std::byte* data;
  std::int64_t row_stride;  // bytes; gptq, awq: between rows of words
  std::int64_t rows;        // N
  std::int64_t columns;     // K
  std::int64_t group;       // columns that share a scale: K where a row has one
  const std::byte* scale;   // null: none
  DType scale_dtype;
  std::int64_t scale_rows;
  std::int64_t scale_n_stride;
  std::int64_t scale_k_stride;
  const std::byte* zeros;  // u8 [N, K/g] (int4), i32 words [K/g, N/8] (gptq, awq), null: 8
  std::int64_t zero_n_stride;
  std::int64_t zero_k_stride;
  int zero_offset;               // gptq stores zeros minus one
  const std::uint16_t* to_bf16;  // fp8: value of each of the 256 codes
  // Packed: `data` is the storage, and of the fields above only codes, block, rows, columns and group hold.
  PackedLayout packed;

  bool is_packed() const { return packed.packing != WeightPacking::none; }
  bool has_mins() const { return block != nullptr && block->has_mins(); }
};

// X. The scale of (t, k) is scale[t · scale_t_stride + k / 128 · scale_k_stride], k being a column of x: that of W's
// column k is the scale of x[perm[k]].
struct InputView {
  const std::byte* data;
  DType dtype;
  std::int64_t row_stride;   // bytes
  const std::int32_t* perm;  // column k of W multiplies x[perm[k]]; null: in order
  const float* scale;        // null: none
  std::int64_t scale_t_stride;
  std::int64_t scale_k_stride;
  const std::uint16_t* to_bf16;  // fp8

  bool has_block_scales() const { return scale != nullptr && scale_k_stride != 0; }
};

// Where a column band of Y goes: rows of an operand, heads of `plan.width` columns each.
struct CacheBand {
  std::int64_t first_column;  // of Y
  RowPlan plan;
  KvHeads heads;
  const RowAddress* rows;  // [tokens] head 0 of each token; without a row: dropped
};

enum class Scaling : std::uint8_t {
  at_end,  // one scale per column and per token, if any
  per_group  // every `group` columns of W have their own: partial sums are scaled before they are added
};

struct MatmulJob {
  InputView x;
  WeightView weight;
  std::int64_t tokens;
  std::int64_t depth_block;  // a multiple of group
  std::int64_t group;        // per_group scaling
  std::int64_t token_block;  // tokens whose sums are kept at a time
  Scaling scaling;
  const float* bias;  // [N], null: none
  std::byte* out;     // Q, or all of Y
  DType out_dtype;
  std::int64_t out_stride;  // bytes
  std::int64_t q_dim;
  CacheBand bands[2];
  int num_bands;  // 0: without a cache
  std::byte* packed_x;
};

}  // namespace quire::cpu
