// SPDX-License-Identifier: Apache-2.0
// A compiled prefill kernel, as a value.
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda {

// What happens to a score between the product and the softmax.
enum class Scores : std::uint8_t {
  scaled,    // a positive scale
  modified,  // any scale, softcap, ALiBi; rows whose tokens bring key intervals of their own
};

// What happens to a tile's rows behind their last key.
enum class Ends : std::uint8_t {
  finished,  // divided by their sums and stored
  chained,   // that, or kept for the next chunk of keys (epilogue.cuh)
};

// What products are made of.
enum class Products : std::uint8_t {
  wide,   // numbers of 16 bits: of q's dtype, or f16 over a cache of e4m3
  mixed,  // scores of e4m3, with q as the sum of two such numbers; sums of f16
  fp8,    // e4m3: q and the weights rounded to it, V transposed before (fp8/transpose_values.h)
};

// In which order a step issues its two products. Measured at 192 columns of q and K: sums first saves
// 1 % over 4096 keys, nothing over 1024. Without turns at the tensor cores it saves 2 %, and costs as
// much over 1024.
enum class StepOrder : std::uint8_t {
  scores_first,  // the softmax begins under the sum
  sum_first,  // both are awaited together: an issue holds the warps until most products have begun
};

// A block takes 64 · consumers query rows (tokens × heads of one KV head) over block_keys keys at a
// time, 64 rows per consumer warpgroup. Of heads wider than 256 the accumulator of 64 rows does not fit
// a warpgroup: two share the rows, each with half of the columns (roles/attend_columns.cuh).
struct PrefillConfig {
  DType dtype = DType::bf16;        // of q and out
  DType cache_dtype = DType::bf16;  // of K and V: the same, or e4m3
  int head_dim = 128;               // of q and K, a multiple of 16
  int value_dim = 128;              // of V and out, a multiple of 16
  int block_keys = 128;             // a multiple of 16
  int consumers = 2;
  int column_groups = 1;  // consumer warpgroups that share 64 rows
  // CTAs side by side in the tile's rows. They have the same blocks of keys; each loads a part for all.
  int cluster = 1;
  // Blocks in shared memory. A step holds one of each and awaits the next beside it. K is done with
  // in the middle of a step, V at its end: a third V block is worth more than a third K block.
  int key_stages = 2;
  int value_stages = 3;
  int q_buffers = 2;
  // Of a tile's q, each loaded as soon as the consumers of its rows are done with those before: with
  // one buffer, what the first consumer waits for is not also what the second still needs.
  int q_parts = 1;
  // Of the first warpgroup, that follow the tiles: two for K, two for V, or one each. The others
  // dequantize a cache of another format into what they load (sm90/flash_attention/prefill/dequantized/dequantizing_kernel.cuh).
  int loading_warps = 4;
  Scores scores = Scores::scaled;
  Ends ends = Ends::finished;
  Products products = Products::wide;
  StepOrder order = StepOrder::scores_first;

  static constexpr int kSwizzleColumnWidth = 64;  // 128 bytes: a swizzled row

  constexpr bool takes_intervals() const { return scores == Scores::modified; }
  constexpr int cta_rows() const { return 64 * consumers / column_groups; }
  constexpr int rows() const { return cta_rows() * cluster; }
  constexpr int part_rows() const { return cta_rows() / q_parts; }
  constexpr int threads() const { return 128 * (1 + consumers); }
  // Of a thread; a block has 504 for every three of its threads, one of each warpgroup.
  constexpr int producer_registers() const { return converts() || dequantizes() ? 56 : 40; }
  constexpr int consumer_registers() const { return converts() || dequantizes() ? 224 : 232; }
  // The lead warp finds the next tile while this one's blocks are still to be loaded; not where a cluster's ranks and
  // masks have the registers for it.
  constexpr bool finds_tiles_early() const { return cluster == 1; }
  constexpr bool dequantizes() const { return loading_warps < 4; }
  // The last tiles may be cut along their keys (tail_cuts.h): where putting splits together finds
  // registers beside the next tile's scores.
  constexpr bool cuts_tiles() const {
    const bool has_registers = head_dim <= 128 && !(converts() && scores == Scores::modified);
    return has_registers && ends == Ends::finished && !has_fp8_products();
  }
  // e4m3 becomes f16 in shared memory, exactly; q follows it.
  constexpr bool converts_keys() const {
    return cache_dtype != dtype && products == Products::wide;
  }
  constexpr bool converts_values() const { return cache_dtype != dtype && !has_fp8_products(); }
  constexpr bool converts() const { return converts_values(); }
  constexpr bool has_fp8_products() const { return products == Products::fp8; }
  // Of weights and V, and of q and K.
  constexpr DType product_dtype() const {
    if (has_fp8_products()) return DType::fp8_e4m3;
    return converts() ? DType::f16 : dtype;
  }
  constexpr DType score_dtype() const {
    return products == Products::mixed ? DType::fp8_e4m3 : product_dtype();
  }
  // Columns of a row of 128 bytes: of K and V as they are copied, as products read them, and of q
  // as it is copied.
  constexpr int copied_columns() const { return cache_dtype == DType::fp8_e4m3 ? 128 : 64; }
  constexpr int key_swizzle_column_width() const {
    return score_dtype() == DType::fp8_e4m3 ? 128 : 64;
  }
  constexpr int value_swizzle_column_width() const { return has_fp8_products() ? 128 : 64; }
  constexpr int query_swizzle_columns() const {
    return (head_dim + kSwizzleColumnWidth - 1) / kSwizzleColumnWidth;
  }
  constexpr int copied_key_swizzle_columns() const {
    return (head_dim + copied_columns() - 1) / copied_columns();
  }
  constexpr int copied_value_swizzle_columns() const {
    return (value_dim + copied_columns() - 1) / copied_columns();
  }
  // Where in a block of `swizzle_columns` one of the `copied` stands (roles/load.cuh).
  constexpr int copied_swizzle_column(int swizzle_column, int copied, int swizzle_columns) const {
    if (copied == swizzle_columns) return swizzle_column;
    return 2 * swizzle_column + 1 < swizzle_columns ? 2 * swizzle_column + 1 : swizzle_columns - 1;
  }
  constexpr int key_swizzle_columns() const {
    return (head_dim + key_swizzle_column_width() - 1) / key_swizzle_column_width();
  }
  constexpr int value_swizzle_columns() const {
    return (value_dim + value_swizzle_column_width() - 1) / value_swizzle_column_width();
  }
};

// Every compiled prefill kernel: the files in variants/ by width (bf16 and f16 together), a row of
// sm90/flash_attention/prefill/plan_prefill.h for the planner.

template <DType kDType, Scores kScores> struct PrefillD64 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = kDType,
                                         .head_dim = 64,
                                         .value_dim = 64,
                                         .key_stages = 3,
                                         .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD80 {
  static constexpr PrefillConfig kConfig{
      .dtype = kDType, .cache_dtype = kDType, .head_dim = 80, .value_dim = 80, .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD96 {
  static constexpr PrefillConfig kConfig{
      .dtype = kDType, .cache_dtype = kDType, .head_dim = 96, .value_dim = 96, .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD112 {
  static constexpr PrefillConfig kConfig{
      .dtype = kDType, .cache_dtype = kDType, .head_dim = 112, .value_dim = 112, .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD128 {
  static constexpr PrefillConfig kConfig{.dtype = kDType, .cache_dtype = kDType, .scores = kScores};
};
// Over a cache of e4m3.
template <DType kDType, Scores kScores> struct PrefillD64E4m3 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = DType::fp8_e4m3,
                                         .head_dim = 64,
                                         .value_dim = 64,
                                         .key_stages = 3,
                                         .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD128E4m3 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = DType::fp8_e4m3,
                                         .key_stages = 3,
                                         .scores = kScores,
                                         .products = Products::mixed};
};
// Over a cache of e4m3 that becomes q's dtype in the workspace.
template <DType kDType, Scores kScores> struct PrefillD128Dequantizing {
  static constexpr PrefillConfig kConfig{
      .dtype = kDType, .cache_dtype = kDType, .loading_warps = 2, .scores = kScores};
};
// Over a cache of e4m3, products of e4m3 too.
template <DType kDType, Scores kScores> struct Fp8D128 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = DType::fp8_e4m3,
                                         .key_stages = 4,
                                         .value_stages = 4,
                                         .scores = kScores,
                                         .products = Products::fp8};
};
// The rope part of a key fills half of its second swizzle column.
template <DType kDType, Scores kScores> struct Fp8D192V128 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = DType::fp8_e4m3,
                                         .head_dim = 192,
                                         .key_stages = 3,
                                         .q_buffers = 1,
                                         .q_parts = 2,
                                         .scores = kScores,
                                         .products = Products::fp8};
};
// The heads of latent attention, projected.
template <DType kDType, Scores kScores> struct PrefillD192V128 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = kDType,
                                         .head_dim = 192,
                                         .value_stages = 2,
                                         .q_buffers = 1,
                                         .q_parts = 2,
                                         .scores = kScores,
                                         .order = StepOrder::sum_first};
};
template <DType kDType, Scores kScores> struct PrefillD192 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = kDType,
                                         .head_dim = 192,
                                         .value_dim = 192,
                                         .block_keys = 112,
                                         .value_stages = 2,
                                         .q_buffers = 1,
                                         .scores = kScores};
};
// 64 rows of q, a block of K and one of V are 192 KiB; what is loaded for one of two CTAs is loaded for both, or L2
// would be read faster than it can be.
template <DType kDType, Scores kScores> struct PrefillD512 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = kDType,
                                         .head_dim = 512,
                                         .value_dim = 512,
                                         .block_keys = 64,
                                         .column_groups = 2,
                                         .cluster = 2,
                                         .key_stages = 1,
                                         .value_stages = 1,
                                         .q_buffers = 1,
                                         .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD256 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = kDType,
                                         .head_dim = 256,
                                         .value_dim = 256,
                                         .block_keys = 64,
                                         .q_buffers = 1,
                                         .scores = kScores};
};

}  // namespace quire::cuda
