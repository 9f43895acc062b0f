// SPDX-License-Identifier: Apache-2.0
// A compiled sparse_mla kernel, as a value, and the sizes that all of them share.
#pragma once

#include <cstdint>

namespace quire::cuda::sm90::sparse_mla {

// How rows of the cache become the bf16 tile that the tensor cores read.
enum class RowKind : std::uint8_t {
  bf16,  // copied as they are
  fp8,   // e4m3 latent, decoded and scaled on the way; rope bf16 or e4m3
};

// Which columns of a row are values.
enum class RowShape : std::uint8_t {
  latent_rope,  // the first 512 of 576
  whole,  // all 512; of fp8 rows the last 64 are bf16, the others have an e8m0 scale for every 64
};
constexpr int num_columns(RowShape shape) {
  return shape == RowShape::whole ? 512 : 576;
}

struct SparseConfig {
  RowKind rows = RowKind::bf16;
  RowShape shape = RowShape::latent_rope;
  int keys = 64;        // of a tile
  int stages = 2;       // tiles on their way or in use
  int blocks = 1;       // of a cluster: 2 have other heads of the same token, and share its rows
  int rope_stages = 1;  // rope columns are free once the scores are done
  int raw_stages = 0;   // tiles of bytes that wait to be decoded

  // Warpgroups: one scores, weighs and sums the left half of the values, one sums the right half, one
  // gathers rows. Registers of a thread of each; together the 504 that three warpgroups may have.
  int score_registers = 208;
  int sum_registers = 176;
  int gather_registers = 120;

  static constexpr int kWarpgroup = 128;
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kWarps = kWarpgroup / 32;  // that gather, each its own rows of a tile

  static constexpr int kHeads = 64;    // query rows of a CTA: heads of one token
  static constexpr int kLatent = 512;  // columns of a row that are values too
  static constexpr int kRope = 64;
  static constexpr int kSwizzleColumnWidth = 64;  // 128 bytes of bf16
  static constexpr int kSwizzleColumns = (kLatent + kRope) / kSwizzleColumnWidth;  // with rope
  static constexpr int kHalfColumns = kLatent / 2;
  static constexpr int kHalfSwizzleColumns = kHalfColumns / kSwizzleColumnWidth;

  // Of the code that gathers: with one for each stream its parameters take no registers, with one for
  // both it is shorter.
  constexpr int gather_copies() const { return blocks; }
  // Copied rows have no writer that could fence them, and a fence between products stops the tensor cores:
  // the warpgroup that waits most does it.
  constexpr bool sum_fences() const { return rows == RowKind::bf16; }
  constexpr bool has_rope() const { return shape == RowShape::latent_rope; }
  constexpr int swizzle_columns() const { return num_columns(shape) / kSwizzleColumnWidth; }
  constexpr int warp_rows() const { return keys / kWarps; }
  constexpr int swizzle_column_bytes() const { return keys * kSwizzleColumnWidth * 2; }
};

// A compiled kernel for e4m3 rows and few heads, as a value, and the sizes that all of them share.

struct Fp8Config {
  int heads = 32;  // columns of the products
  int stages = 4;  // tiles on their way or in use

  // Registers of a thread; together the 504 that three warpgroups may have.
  int attend_registers = 216;
  int gather_registers = 72;

  static constexpr int kKeys = 64;  // of a tile: rows of a product
  static constexpr int kWarpgroup = 128;
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kAttenders = 2 * kWarpgroup;
  static constexpr int kWarps = kWarpgroup / 32;
  static constexpr int kWarpKeys = kKeys / kWarps;
  static constexpr int kSwizzleColumns =
      SparseConfig::kSwizzleColumns;  // of queries, 64 columns each
  static constexpr int kGroups = 4;   // of 128 columns, each with its scale
  // In shared memory rows stand 656 bytes apart, whatever their length: eight of them then begin in
  // eight different groups of banks.
  static constexpr int kRowStride = 656;

  constexpr int thread_heads() const { return heads / 4; }  // columns of a thread
  constexpr int query_swizzle_column_bytes() const { return heads * 128; }
};

// Every compiled sparse_mla kernel: one file in variants/ for each kind of rows.

struct SparseBf16 {
  static constexpr SparseConfig kConfig{.rows = RowKind::bf16};
};
// Tiles of 32 keys leave room for the bytes of two more tiles on their way.
struct SparseFp8 {
  static constexpr SparseConfig kConfig{.rows = RowKind::fp8,
                                        .keys = 32,
                                        .stages = 3,
                                        .rope_stages = 2,
                                        .raw_stages = 2,
                                        .score_registers = 200,
                                        .sum_registers = 168,
                                        .gather_registers = 136};
};
// 128 heads: two blocks, which decode for each other.
struct SparseFp8Pair {
  static constexpr SparseConfig kConfig{.rows = RowKind::fp8, .blocks = 2};
};

// The same of whole rows. The room of the rope columns is that of one more tile of bytes.
struct SparseWholeBf16 {
  static constexpr SparseConfig kConfig{.rows = RowKind::bf16, .shape = RowShape::whole};
};
struct SparseWholeFp8 {
  static constexpr SparseConfig kConfig{.rows = RowKind::fp8,
                                        .shape = RowShape::whole,
                                        .keys = 32,
                                        .stages = 3,
                                        .raw_stages = 3,
                                        .score_registers = 200,
                                        .sum_registers = 168,
                                        .gather_registers = 136};
};
struct SparseWholeFp8Pair {
  static constexpr SparseConfig kConfig{
      .rows = RowKind::fp8, .shape = RowShape::whole, .blocks = 2};
};

// Every compiled kernel for e4m3 rows and few heads (src/cuda/variants.cmake).

// Half as many sums as with 32 heads; who gathers has more than enough in 88.
struct SparseFp8Heads16 {
  static constexpr Fp8Config kConfig{.heads = 16, .attend_registers = 208, .gather_registers = 88};
};
struct SparseFp8Heads32 {
  static constexpr Fp8Config kConfig{.heads = 32};
};

}  // namespace quire::cuda::sm90::sparse_mla
