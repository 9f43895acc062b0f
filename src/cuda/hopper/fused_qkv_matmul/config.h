// SPDX-License-Identifier: Apache-2.0
// A compiled kernel of fused_qkv_matmul on Hopper, as a value.
#pragma once

#include <cstdint>

#include "quire/dtype.h"

namespace quire::cuda::hopper {

// What the blocks of a cluster have in common and fetch once for all of them.
enum class Shared : std::uint8_t {
  weight,  // they stand one below the other: other tokens, the same columns
  tokens,  // they stand side by side: the same tokens, other columns
};

// A block computes 64 · consumers tokens × tile_n columns, 64 tokens per consumer warpgroup.
struct TileConfig {
  DType dtype = DType::bf16;  // of x and the weight
  int tile_n = 256;           // a multiple of 32
  int consumers = 2;          // warpgroups
  int stages = 4;             // of (kept_tokens + tile_n) × 128 bytes
  int cluster = 2;            // blocks
  Shared shared = Shared::weight;
  // Rows of x in a stage. Fewer than tokens() where that many tokens never come: the products of the
  // rows behind them read whatever follows, and are not stored.
  int kept_tokens = 128;
  int blocks_per_sm = 1;

  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;

  constexpr int tokens() const { return 64 * consumers; }
  constexpr int threads() const { return 128 * (1 + consumers); }
  constexpr int groups() const { return tile_n / 32; }
  // Blocks among which the copies of a weight tile, and of a token tile, are divided.
  constexpr int weight_sharers() const { return shared == Shared::weight ? cluster : 1; }
  constexpr int token_sharers() const { return shared == Shared::tokens ? cluster : 1; }
  // Groups of 32 weight rows that one copy brings: a sharer's part, unless the groups are odd.
  constexpr int box_groups() const {
    return groups() % weight_sharers() == 0 ? groups() / weight_sharers() : 1;
  }
  // fp8 products keep 13 bits against the sum, so every 128 of K they are added up in fp32 outside
  // the tensor core.
  constexpr bool promotes() const { return is_fp8(dtype); }
  // Columns whose products are on their way while those before them are added up.
  constexpr int part_n() const { return tile_n > 64 && tile_n % 64 == 0 ? 64 : tile_n / 2; }
  // Large tiles need more registers than an even share.
  constexpr bool moves_registers() const { return tile_n >= 128; }
};

}  // namespace quire::cuda::hopper
