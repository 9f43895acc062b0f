// SPDX-License-Identifier: Apache-2.0
// Few query rows over rows of e4m3: shared memory of a block, and what its roles agree on.
//
// Operands are swapped: keys, then value columns, are the 64 rows of an instruction, and the query rows
// its columns, so that 16 of them cost a quarter of what 64 would. Tiles of 64 keys have numbers that run
// on over the borders of items; group n % 2 has tile n from its bytes to its sums.
//
//   load      one warp     walks the block's part of the work; bytes of a tile into stage n % kStages
//   attend    two groups   scoresᵀ = K · qᵀ, softmax, sumsᵀ += Vᵀ · weights; K and V are e4m3 in shared
//                          memory and 16 bits in registers, converted there on the way to the product
//
//   ring.full              the bytes of the copy engine, and of every lane that copies scales
//   ring.empty             four warps: they have fetched the last of its values
//   items                  full: the loading warp; empty: all eight warps, when the item is finished
#pragma once

#include <cstddef>

#include "cuda/hopper/latent_attention/shared.cuh"

namespace quire::cuda::hopper {

struct FewRows {
  static constexpr int kKeys = 64;  // of a tile
  static constexpr int kGroups = 2;
  static constexpr int kGroupWarps = 4;
  static constexpr int kWarps = kGroups * kGroupWarps;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kItems = 3;
  static constexpr int kLoadRegisters = 56;
  static constexpr int kAttendRegisters = 224;

  static constexpr int kLatentSlabs = LatentConfig::kLatent / 128;  // of 128 bytes, 128 columns
  static constexpr int kBlocks = LatentConfig::kLatent / 64;        // of columns: an instruction's
  static constexpr int kQuerySlabs = kBlocks + 1;                   // of 64 columns; rope the last
  static constexpr int kScaleGroups = 4;                            // of latent columns
};

// 64 rows as the cache has them.
struct FewRowsStage {
  std::byte latents[FewRows::kLatentSlabs][FewRows::kKeys * kRowBytes];  // swizzle b128
  std::byte rope[FewRows::kKeys * kRowBytes];  // bf16, swizzle b128; e4m3: 64-byte rows, swizzle b64
  float4 scales[FewRows::kKeys];               // one for 128 columns, or one alone, in x
};

template <typename Variant> struct FewRowsShared {
  static constexpr int kRows = Variant::kRows;
  static constexpr int kStages = Variant::kStages;
  static constexpr int kSlabBytes = kRows * kRowBytes;

  // Rows of 64 columns, swizzle b128. Latent columns as f16, in the order of key_words (operands.cuh);
  // rope as the cache's: bf16, or f16 in that order.
  alignas(1024) std::byte q[FewRows::kQuerySlabs][kSlabBytes];
  // Rows of 64 keys, bf16, swizzle b128; for each group of columns that has its own scales, or one.
  // Between items: sums on their way from one group to the other.
  alignas(1024) std::byte weights[FewRows::kGroups][FewRows::kScaleGroups][kSlabBytes];
  alignas(1024) FewRowsStage stages[kStages];
  float query_factors[kRows];  // from a score to powers of two
  float tops[FewRows::kGroups][FewRows::kGroupWarps][kRows];
  float sums[FewRows::kGroups][FewRows::kGroupWarps][kRows];
  float refs[FewRows::kGroups][kRows];
  std::uint64_t valid[kStages];  // a bit per key
  LatentItem items[FewRows::kItems];
  RingBarriers<kStages> ring;
  RingBarriers<FewRows::kItems> item_ring;

  __device__ void init(bool copies_scales) {
    ring.init(copies_scales ? 33 : 1, FewRows::kGroupWarps);
    item_ring.init(1, FewRows::kWarps);
  }
};
static_assert(sizeof(FewRowsStage) % 1024 == 0);

}  // namespace quire::cuda::hopper
