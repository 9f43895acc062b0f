// SPDX-License-Identifier: Apache-2.0
// Few query rows: shared memory of a block, and what its roles agree on.
//
// Operands are swapped: keys, then value columns, are the 64 rows of an instruction, and the query rows
// its columns, so that 16 of them cost a quarter of what 64 would, and leave their room to keys that are
// on their way. Tiles of 64 keys have numbers that run on over the borders of items.
//
//   load      one warp     walks the block's part of the work; tiles into the ring
//   attend    groups       a warpgroup has a tile from its scores to its sums: scoresᵀ = K · qᵀ, softmax,
//                          sumsᵀ += Vᵀ · weights. Two groups take tiles in turn (tile_groups) or have
//                          16 rows each (row_groups).
//
//   ring.full              the bytes of the copy engine, and every lane that copies scales
//   ring.empty             the four warps of each group that reads the slot
//   items                  full: the loading warp; empty: all warps that attend, when it is finished
#pragma once

#include <cstddef>

#include "cuda/hopper/latent_attention/shared.cuh"
#include "cuda/hopper/mla_decode/few_rows/config.h"

namespace quire::cuda::hopper {

// e4m3 rows, as the cache has them: 64 in a slot. K and V become 16 bits in registers, on the way to the
// product.
template <FewRowsConfig kConfig, DType kLatents = kConfig.latents> struct FewRowsSlot {
  static constexpr int kSlabs = LatentConfig::kLatent / kRowBytes;

  std::byte latents[kSlabs][FewRowsConfig::kKeys * kRowBytes];  // swizzle b128
  // bf16, swizzle b128; e4m3: 64-byte rows, swizzle b64
  std::byte rope[FewRowsConfig::kKeys * kRowBytes];
  float4 scales[FewRowsConfig::kKeys];  // one for 128 columns, or one alone, in x
};
// bf16 rows: half of the latent columns of 64, in slabs of 64 columns, swizzle b128. A tile has two
// slots; the rope columns come with the first.
template <FewRowsConfig kConfig> struct FewRowsSlot<kConfig, DType::bf16> {
  static constexpr int kSlabs = FewRowsConfig::kBlocks / 2;

  std::byte latents[kSlabs][FewRowsConfig::kKeys * kRowBytes];
  std::byte rope[FewRowsConfig::kKeys * kRowBytes];
};

template <FewRowsConfig kConfig> struct FewRowsShared {
  static constexpr int kQuerySlabBytes = kConfig.rows() * kRowBytes;
  static constexpr int kWeightBytes = kConfig.group_rows * kRowBytes;

  // Rows of 64 columns, swizzle b128; rope the last. For e4m3: f16, in the order of key_words
  // (operands.cuh); the rope part as the cache has it, bf16 or f16 in that order.
  alignas(1024) std::byte q[FewRowsConfig::kBlocks + 1][kQuerySlabBytes];
  // Rows of 64 keys, bf16, swizzle b128; one for each group of columns that has its own scales, or one
  // alone. Between items: sums on their way from one warpgroup to the other.
  alignas(1024) std::byte weights[kConfig.groups()][kConfig.weight_copies()][kWeightBytes];
  alignas(1024) FewRowsSlot<kConfig> slots[kConfig.slots];
  float query_factors[kConfig.rows()];  // from a score to powers of two
  float tops[kConfig.groups()][FewRowsConfig::kGroupWarps][kConfig.group_rows];
  float sums[kConfig.groups()][FewRowsConfig::kGroupWarps][kConfig.group_rows];
  float refs[kConfig.groups()][kConfig.group_rows];
  std::uint64_t valid[kConfig.slots];  // a bit per key
  LatentItem items[FewRowsConfig::kItems];
  RingBarriers<kConfig.slots> ring;
  RingBarriers<FewRowsConfig::kItems> item_ring;

  static_assert(sizeof(FewRowsSlot<kConfig>) % 1024 == 0);

  __device__ void init(bool copies_scales) {
    ring.init(copies_scales ? 33 : 1, FewRowsConfig::kGroupWarps * kConfig.row_groups);
    item_ring.init(1, FewRowsConfig::kGroupWarps * kConfig.groups());
  }
};

// Slot number `number` of a block's: where it stands, and which round of the ring it is.
template <FewRowsConfig kConfig> struct SlotPlace {
  __device__ explicit SlotPlace(int number)
      : slot(number % kConfig.slots),
        phase(static_cast<std::uint32_t>(number / kConfig.slots) & 1) {}

  const int slot;
  const std::uint32_t phase;
};

}  // namespace quire::cuda::hopper
