// SPDX-License-Identifier: Apache-2.0
// Many query rows over rows of e4m3 that are multiplied as the codes they are: shared memory of a CTA, and what its
// roles agree on.
//
// A CTA has 64 query rows. Tiles of 64 keys come as bytes and stay bytes: K and V of a tile are one buffer. Both products
// want operands along K. For S = q · Kᵀ that is how rows lie; for Oᵀ = Vᵀ · Pᵀ the A operand is Vᵀ, which a warp fetches
// from the same bytes by ldmatrix (transposed) and two byte permutes.
//
//   load    warp 0     walks the cluster's part of the work and has TMA bring tiles
//           warp 1     describes work tiles, and has their queries brought into L2
//           warp 2     takes a power of two out of a tile's scales
//   attend  group g    S, softmax and P of every second tile; rows [256g, 256g + 256) of Oᵀ over all tiles, and the output
//
// 16 bits of precision from products of 8: with terms = 2 a number of q or of P is the sum of one of e4m3 and one of e5m2
// (what the first leaves, in a format that reaches 2^-16), and each is multiplied. bf16 queries lose nothing by it.
//
// The tensor cores keep 13 bits below a sum: S is added up in fp32 after every 128 columns, O after every tile.
//
//   full[stage]            the bytes of TMA copies, and scales copied by the threads of warp 0
//   empty[stage]           the eight warps of both groups: O has the tile
//   scaled[stage]          warp 2, of rows with scales: those of the tile are ready
//   weights_full[parity]   the threads of the group that wrote P: P, factors, zeros behind the sequence's end
//   weights_empty[parity]  the threads of the other group: it has read them
//   refs_full[group][warp] a warp has left the references of its rows for the other group
#pragma once

#include <cstddef>

#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/variants.h"

namespace quire::cuda::sm90::mla_decode {

struct Fp8Pingpong {
  static constexpr int kRows = 64;           // of q
  static constexpr int kKeys = 64;           // of a tile
  static constexpr int kColumnBytes = 8192;  // 64 rows of 128 bytes
  static constexpr int kGroups = 4;          // of 128 latent columns: a swizzle column, a scale
  static constexpr int kWeightBytes = kRows * kKeys;
  static constexpr int kAttendGroups = 2;
  static constexpr int kGroupWarps = 4;
  static constexpr int kAttendThreads = 128 * kAttendGroups;
  static constexpr int kThreads = kAttendThreads + 128;
  static constexpr int kWorkTiles = 3;  // described ahead
  // 384 threads have 168 registers each at the start.
  static constexpr int kLoadRegisters = 40;
  static constexpr int kAttendRegisters = 232;
  // Named barriers.
  static constexpr int kAttendBarrier = 1;
};

// Of a row's end in the output.
struct CodedRowEnd {
  std::byte* out;  // null: not stored
  float factor;
};

template <Fp8PingpongConfig kConfig> struct Fp8PingpongShared {
  static constexpr int kStages = kConfig.stages;
  static constexpr int kTerms = kConfig.terms;
  static constexpr int kRopeBytes = Fp8Pingpong::kKeys * kConfig.rope_bytes();
  using Column = std::byte[Fp8Pingpong::kColumnBytes];   // swizzle b128
  using Weights = std::byte[Fp8Pingpong::kWeightBytes];  // rows of 64 bytes, swizzle b64

  alignas(1024) Column q[kTerms][Fp8Pingpong::kGroups];
  // bf16, or the 64 bytes of each term side by side.
  alignas(1024) Column q_rope;
  alignas(1024) Column latents[kStages][Fp8Pingpong::kGroups];
  alignas(1024) std::byte rope[kStages][kRopeBytes];  // swizzle b128 (bf16) or b64
  // Of even and odd tiles. Of 16 keys, a row has 0, 1, 8, 9, 2, 3, 10, 11, …: in the order that Vᵀ is fetched.
  alignas(1024) Weights weights[2][kConfig.scale_groups()][kTerms];
  // As they come: [key][scale of 128 columns], or [key].
  alignas(16) float scales[kStages][Fp8Pingpong::kKeys * kConfig.row_scales()];
  // Those of a tile, over the least power of two that none of them exceeds; 0 where there is no key.
  alignas(16) float ratios[kStages][kConfig.scale_groups()][Fp8Pingpong::kKeys];
  float powers[kStages][kConfig.scale_groups()];
  float query_factors[Fp8Pingpong::kGroups + 1]
                     [Fp8Pingpong::kRows];  // of the products of 128 columns; of rope last
  float refs[Fp8Pingpong::kRows];           // what exponents are relative to, in powers of two
  // Of the last four tiles: what O is multiplied by before a tile's products are added, and whether there are any but 1
  // among a warp's 16 rows.
  alignas(16) float factors[4][Fp8Pingpong::kRows];
  alignas(16) int rises[4][Fp8Pingpong::kGroupWarps];
  float2 stats[Fp8Pingpong::kAttendGroups][Fp8Pingpong::kRows];  // (relative to, sum of weights)
  CodedRowEnd targets[Fp8Pingpong::kRows];
  std::uint64_t valid[kStages];  // a bit per key: the sequence's, and on a page
  LatentWorkTile work_tiles[Fp8Pingpong::kWorkTiles];
  WorkScanShared work_scan;
  FullBarrier full[kStages];
  EmptyBarrier empty[kStages];
  EmptyBarrier scaled[kStages];
  RingBarriers<Fp8Pingpong::kWorkTiles> work_tile_ring;
  EmptyBarrier weights_full[2];
  EmptyBarrier weights_empty[2];
  EmptyBarrier refs_full[Fp8Pingpong::kAttendGroups][Fp8Pingpong::kGroupWarps];

  __device__ void init() {
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].init(kConfig.kind == Fp8RowKind::token ? 33 : 1);
      empty[stage].init(Fp8Pingpong::kAttendGroups * Fp8Pingpong::kGroupWarps);
      scaled[stage].init(32);
    }
    work_tile_ring.init(1, Fp8Pingpong::kAttendThreads);
    for (int i = 0; i < 2; ++i) {
      weights_full[i].init(128);
      weights_empty[i].init(128);
      for (EmptyBarrier& warp : refs_full[i]) warp.init(32);
    }
  }
};

// The upper half of a descriptor of rows of 64 bytes, swizzle b64.
inline constexpr std::uint32_t kHalfRowsHigh = 2U << 30 | 512 >> 4;

// By whole warps.
__device__ inline void arrive_warp(EmptyBarrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier.arrive();
}

// Two numbers as two bytes, the first lowest.
template <DType kDType> __device__ inline std::uint32_t pack_codes(float first, float second) {
  std::uint16_t codes;
  if constexpr (kDType == DType::fp8_e4m3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  }
  return codes;
}
// What two codes of e4m3 stand for.
__device__ inline float2 numbers_of(std::uint32_t codes) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

// Four numbers as codes, and what those leave of them.
template <int kTerms> struct CodedFour {
  std::uint32_t words[kTerms];

  __device__ CodedFour(float a, float b, float c, float d) {
    const std::uint32_t low = pack_codes<DType::fp8_e4m3>(a, b);
    const std::uint32_t high = pack_codes<DType::fp8_e4m3>(c, d);
    words[0] = low | high << 16;
    if constexpr (kTerms == 2) {
      const float2 first = numbers_of(low);
      const float2 second = numbers_of(high);
      words[1] = pack_codes<DType::fp8_e5m2>(a - first.x, b - first.y) |
                 pack_codes<DType::fp8_e5m2>(c - second.x, d - second.y) << 16;
    }
  }
};

}  // namespace quire::cuda::sm90::mla_decode
