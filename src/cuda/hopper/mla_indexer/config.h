// SPDX-License-Identifier: Apache-2.0
// A compiled indexer kernel, as a value.
#pragma once

namespace quire::cuda::hopper {

// A thread block scores `tokens` tokens × `heads` heads of one sequence against 64 keys at a time in
// each of two warpgroups; one warp more loads. Two thread blocks share an SM: while one selects, the
// other keeps the tensor cores busy.
struct IndexConfig {
  int heads = 64;
  int tokens = 1;
  int dims = 128;  // 64 or 128
  int stages = 4;  // of 64 keys

  static constexpr int kTileKeys = 64;
  static constexpr int kWarpgroups = 2;
  static constexpr int kScorers = 128 * kWarpgroups;  // threads
  static constexpr int kThreads = kScorers + 32;
  static constexpr int kBlocksPerSm = 2;
  // Keys kept of a row. Where more than top_k are, the worst are dropped as soon as the keys of
  // another kCheckRounds tiles of all warpgroups might not find room.
  static constexpr int kPoolKeys = 2880;
  static constexpr int kCheckRounds = 2;
  static constexpr int kPoolLimit = kPoolKeys - kCheckRounds * kWarpgroups * kTileKeys;
  static constexpr int kMaxTopK = 2048;
  static constexpr int kMaxTokens = 4;

  constexpr int columns() const { return tokens * heads; }
  // Heads of one product: 64 at most, so that the sums of a product, the weights of all tokens and
  // what else a thread keeps fit into the 96 registers of nine warps to a thread block, two to an SM.
  constexpr int product_columns() const { return columns() < 64 ? columns() : 64; }
  constexpr int products() const { return columns() / product_columns(); }
  // Fewer heads, or columns, would not average out what fp8 instructions cut off (products.cuh): the
  // selection would differ from one by fp32 scores more than their own rounding allows.
  constexpr bool multiplies_halves() const { return heads < 16 || (dims == 64 && heads < 64); }
  constexpr int query_bytes() const { return columns() * dims; }
  constexpr int tile_bytes() const { return kTileKeys * dims; }
};

}  // namespace quire::cuda::hopper
