// SPDX-License-Identifier: Apache-2.0
// What the decode kernels receive: plain values, made on the host.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/mask/visible_range.h"
#include "cuda/common/paging/operand.h"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/softmax/score.h"
#include "cuda/common/split_kv/decode_config.h"
#include "cuda/common/split_kv/split_schedule.h"
#include "quire/dtype.h"

namespace quire::cuda::sm90::flash_attention {

struct DecodeQueries {
  const std::byte* data = nullptr;  // [tokens, heads, head_dim], rows on multiples of 16 bytes
  DType dtype = DType::bf16;
  std::int64_t token_stride_bytes = 0;
  std::int64_t head_stride_bytes = 0;
  int row_bytes = 0;
  Divisor group{1};  // query heads of a KV head
};

// Which of its sequence's new tokens a token sees, within its interval of keys. Null: all of them.
struct DecodeTree {
  const std::uint8_t* bits = nullptr;  // [tokens, columns]: nonzero where a new token is seen
  std::int64_t token_stride = 0;
  int columns = 0;
};

// 2^bits work lists, each of every 2^bits-th KV head: CTA c walks part c / 2^bits of work list
// c % 2^bits. So neighbouring blocks read neighbouring heads of the same keys at about the same time,
// and a token's row in memory is read as a whole (64 sequences of 8192 keys, 8 heads, pages of 16
// tokens of e4m3: 276 µs in place of 308; bf16, pages of 128: 482 in place of 490).
struct WorkLists {
  int bits = 0;
  std::int64_t slots = 0;  // of splits, of one work list

  QUIRE_HOST_DEVICE int part(int thread_block) const { return thread_block >> bits; }
  QUIRE_HOST_DEVICE int list(int thread_block) const { return thread_block & ((1 << bits) - 1); }
  QUIRE_HOST_DEVICE int kv_head(int list, int head_of_list) const {
    return (head_of_list << bits) + list;
  }
  QUIRE_HOST_DEVICE std::int64_t first_slot(int list) const { return list * slots; }
};

struct DecodeOutputs {
  std::byte* out = nullptr;  // [tokens, heads, value_dim]
  DType dtype = DType::bf16;
  std::int64_t token_stride = 0;  // elements
  std::int64_t head_stride = 0;
  int value_dim = 0;
  bool has_vectors = false;  // four columns at a time are aligned
  float* lse = nullptr;      // [tokens, heads], or null
  std::int64_t lse_token_stride = 0;
  std::int64_t lse_head_stride = 0;
};

// Splits of work tiles that several blocks share: sums relative to exp2(max), not divided.
struct DecodeSplits {
  float* sums = nullptr;    // [slots, rows, dims]
  float2* stats = nullptr;  // [slots, rows] (max in powers of two, sum of weights)
  // [slots] `mark` where the split is there (epilogue.cuh); null if a second kernel merges.
  std::uint64_t* marks = nullptr;
  std::uint64_t mark = 0;
};

// Where the KV heads of a token have keys of their own (key_blocks.h), the batch's sequences are these pairs: sequence
// token · kv_heads + kv_head, of one token and one KV head.
struct ListedHeads {
  int kv_heads = 0;  // 0: sequences are what they are elsewhere

  QUIRE_HOST_DEVICE int token(int first_token) const {
    return kv_heads == 0 ? first_token : first_token / kv_heads;
  }
  QUIRE_HOST_DEVICE int kv_head(int first_token, int kv_head) const {
    return kv_heads == 0 ? kv_head : first_token % kv_heads;
  }
};

struct DecodeParams {
  DecodeQueries queries{};
  DecodeBatch batch{};
  PagedOperand kv{};  // rows as those of the queries
  SplitSchedule schedule{};
  WorkLists work_lists{};
  ListedHeads listed{};
  ScoreRules scores{};
  HeadScales scales{};  // of e4m3
  DecodeTree tree{};
  TokenIntervals intervals{};
  DecodeOutputs outputs{};
  DecodeSplits splits{};
};

// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.

template <typename Variant> void launch_decode(const DecodeParams& params, cudaStream_t stream);

// Of a split in the workspace.
struct MergeShape {
  int rows = 0;
  int dims = 0;
};

// Right after the decode kernel on the same stream.
void merge_splits(const DecodeParams& params, const MergeShape& shape, cudaStream_t stream);

// Every compiled decode kernel: a file in variants/ for each dtype, one row of plan_decode.h for the
// planner.

// Heads up to 128 wide. Stages: what shared memory holds beside the queries and the staging of sums.
template <DType kDType, int kRows> struct DecodeD128 {
  static constexpr bool kIsFp8 = kDType == DType::fp8_e4m3;
  static constexpr DecodeConfig kConfig{.dtype = kDType,
                                        .swizzle_columns = kIsFp8 ? 1 : 2,
                                        .rows = kRows,
                                        .stages = kIsFp8 ? (kRows == 8 ? 10 : 8) : 4};
};

// Heads up to 64 wide, of two bytes: in a row of 128 bytes there is room for twice as many columns of e4m3.
template <int kRows> struct DecodeD64 {
  static constexpr DecodeConfig kConfig{
      .dtype = DType::bf16, .swizzle_columns = 1, .rows = kRows, .stages = 8};
};

// Heads up to 256 wide, as many bytes in flight. Sums of more than eight rows do not fit beside them; f16, whose queries
// may come as bf16, has too few registers.
template <DType kDType> struct DecodeD256 {
  static constexpr bool kIsFp8 = kDType == DType::fp8_e4m3;
  static constexpr DecodeConfig kConfig{
      .dtype = kDType, .swizzle_columns = kIsFp8 ? 2 : 4, .rows = 8, .stages = kIsFp8 ? 4 : 2};
};

// Heads up to 512 wide: a set's warps share the columns, so that each has as many accumulators and queries as over
// heads of 128. 128 KiB in flight, in stages of 16 keys; queries of one work tile where rows are many.
template <DType kDType, int kRows> struct DecodeD512 {
  static constexpr bool kIsFp8 = kDType == DType::fp8_e4m3;
  static constexpr DecodeConfig kConfig{.dtype = kDType,
                                        .swizzle_columns = kIsFp8 ? 4 : 8,
                                        .column_warps = 4,
                                        .rows = kRows,
                                        .stages = kIsFp8 ? 8 : 4,
                                        .work_tiles = kRows == 8 ? 3 : (kRows == 16 ? 2 : 1)};
};

}  // namespace quire::cuda::sm90::flash_attention
