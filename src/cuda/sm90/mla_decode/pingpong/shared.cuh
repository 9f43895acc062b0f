// SPDX-License-Identifier: Apache-2.0
// Attention in pairs of tiles: shared memory of a block, and what its roles agree on.
//
// A block has 64 query rows, all columns; where a work tile has more, the next block or the next three have
// 64 each and the same keys at about the same time, so that memory is read once. A work tile's tiles of 64
// keys are taken two at a time: the first of a pair stands in stage 0, the second in stage 1; where their
// number is odd, the last pair has one.
//
//   load    warp h        walks the cluster's part of the work; half h of the columns of every tile
//           warps 2, 3    a work tile's queries; the first of them describes it
//   attend  group g       scores and softmax of stage g's tiles; sums of columns [256g, 256g + 256) over
//                         the tiles of both stages, and the output
//
// Weights stand where the tile's rope columns were: nobody needs those after the scores.
//
//   full[stage][quarter]   the bytes of TMA copies
//   empty[stage][half]     the threads of a group: its sums have the tile; the rope columns go with the
//                          half of the group that had to read the weights there
//   scored[stage]          four warps of the group that scores: nobody reads the rope columns any more
//   weights_full[stage]    the threads of the group that wrote them: the tile's weights, factors and zeros
//   refs_full[stage][warp] a warp of the scores has left the references of its rows for the other group
//   q_full, q_empty        the warps that load queries; all warps that multiply, after their last scores
//   stats_full             a work tile's sums of weights, from all threads to all
//
// Where plain stores and loads are in order through a barrier, every thread that made some arrives:
// racecheck does not follow one lane's arrival for its warp.
#pragma once

#include <cstddef>

#include "cuda/common/split_kv/find_work.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

struct Pingpong {
  static constexpr int kRows = 64;  // of a block
  static constexpr int kKeys = 64;  // of a tile
  static constexpr int kSwizzleColumnWidth = 64;
  static constexpr int kSwizzleColumns =
      (LatentConfig::kLatent + LatentConfig::kRope) / kSwizzleColumnWidth;
  static constexpr int kSwizzleColumnBytes = kKeys * kRowBytes;
  static constexpr int kValueSwizzleColumns = 8;
  static constexpr int kHalfSwizzleColumns = kValueSwizzleColumns / 2;
  static constexpr int kQuarterSwizzleColumns = kHalfSwizzleColumns / 2;
  static constexpr int kQuarters = 4;
  static constexpr int kRopeSwizzleColumn = 8;
  static constexpr int kStages = 2;
  static constexpr int kGroups = 2;
  static constexpr int kGroupWarps = 4;
  static constexpr int kWarps = kGroups * kGroupWarps;
  static constexpr int kQueryWarps = 2;
  static constexpr int kWorkTiles = 3;
  static constexpr int kThreads = 128 * (kGroups + 1);
  // 384 threads have 168 registers each at the start.
  static constexpr int kLoadRegisters = 56;
  static constexpr int kAttendRegisters = 224;
};

// The half of a stage's columns that its rope columns come with: of the group that does not score it.
__device__ constexpr int rope_half(int stage) {
  return stage ^ 1;
}

struct PingpongShared {
  using SwizzleColumn =
      std::byte[Pingpong::kSwizzleColumnBytes];  // 64 rows of 128 bytes, swizzle b128

  alignas(1024) SwizzleColumn q[Pingpong::kSwizzleColumns];
  alignas(1024) SwizzleColumn stages[Pingpong::kStages][Pingpong::kSwizzleColumns];
  float refs[Pingpong::kRows];  // what exponents are relative to, in powers of two
  // Of the sums, before the tile's products are added.
  float factors[Pingpong::kStages][Pingpong::kRows];
  float2 stats[2][Pingpong::kGroups]
              [Pingpong::kRows];           // (relative to, sum of weights), work tiles in turn
  std::uint64_t valid[Pingpong::kStages];  // a bit per key
  LatentWorkTile work_tiles[Pingpong::kWorkTiles];
  WorkScanShared work_scan;
  FullBarrier full[Pingpong::kStages][Pingpong::kQuarters];
  EmptyBarrier empty[Pingpong::kStages][2];
  RingBarriers<Pingpong::kWorkTiles> work_tile_ring;
  EmptyBarrier scored[Pingpong::kStages];
  EmptyBarrier weights_full[Pingpong::kStages];
  EmptyBarrier refs_full[Pingpong::kStages][Pingpong::kGroupWarps];
  EmptyBarrier q_full;
  EmptyBarrier q_empty;
  EmptyBarrier stats_full;

  __device__ std::byte* weights(int stage) { return stages[stage][Pingpong::kRopeSwizzleColumn]; }

  __device__ void init() {
    constexpr int kGroupThreads = 32 * Pingpong::kGroupWarps;
    for (int stage = 0; stage < Pingpong::kStages; ++stage) {
      for (FullBarrier& quarter : full[stage]) quarter.init(1);
      for (EmptyBarrier& half : empty[stage]) half.init(kGroupThreads);
      scored[stage].init(Pingpong::kGroupWarps);
      weights_full[stage].init(kGroupThreads);
      for (EmptyBarrier& warp : refs_full[stage]) warp.init(32);
    }
    work_tile_ring.init(1, 32 * Pingpong::kWarps);
    q_full.init(Pingpong::kQueryWarps);
    q_empty.init(Pingpong::kWarps);
    stats_full.init(32 * Pingpong::kWarps);
  }
};

// By whole warps.
__device__ inline void arrive_once(EmptyBarrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier.arrive();
}

// The products of a group's 64 rows. Asynchronous: between a fence and a commit.

inline constexpr int kHalfColumns = LatentConfig::kLatent / 2;
inline constexpr int kHalfSums = kHalfColumns / 2;  // of a thread

// scores (+)= q · Kᵀ over 64 columns. `a`, `b`: the descriptors' halves for swizzle column 0 of q and the keys.
__device__ inline void issue_swizzle_column(std::uint32_t a, std::uint32_t b, int swizzle_column,
                                            bool starts, float (&scores)[kTileScores]) {
  using Op = Wgmma<DType::bf16, Pingpong::kKeys>;
#pragma unroll
  for (int step = 0; step < kRowBytes / kStepBytes; ++step) {
    const int bytes = swizzle_column * Pingpong::kSwizzleColumnBytes + step * kStepBytes;
    detail::issue<Op>(
        descriptor(a + (bytes >> 4), kRowsHigh), descriptor(b + (bytes >> 4), kRowsHigh), scores,
        starts && step == 0 ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
        std::make_index_sequence<kTileScores>{});
  }
}

// The half of a descriptor that says where the values of 256 columns stand. `swizzle_column`: their first.
__device__ inline std::uint32_t values_low(const PingpongShared::SwizzleColumn& swizzle_column) {
  return broadcast(address_field(&swizzle_column) |
                   static_cast<std::uint32_t>(Pingpong::kSwizzleColumnBytes >> 4) << 16);
}

// sums += weights · V, the weights in registers.
__device__ inline void issue_own(const std::uint32_t (&words)[kTileScores / 2],
                                 const PingpongShared::SwizzleColumn& swizzle_column,
                                 float (&sums)[kHalfSums]) {
  using Op = RegisterWgmma<DType::bf16, kHalfColumns>;
  const std::uint32_t b = values_low(swizzle_column);
#pragma unroll
  for (int step = 0; step < Pingpong::kKeys / 16; ++step) {
    detail::issue<Op>(&words[4 * step], descriptor(b + (step * 16 * kRowBytes >> 4), kRowsHigh),
                      sums, cute::SM90::GMMA::ScaleOut::One, std::make_index_sequence<kHalfSums>{});
  }
}

// The same, the weights as the other group left them.
__device__ inline void issue_other(const std::byte* weights,
                                   const PingpongShared::SwizzleColumn& swizzle_column,
                                   float (&sums)[kHalfSums]) {
  using Op = TransposedWgmma<DType::bf16, kHalfColumns>;
  const std::uint32_t a = broadcast(descriptor_low(weights));
  const std::uint32_t b = values_low(swizzle_column);
#pragma unroll
  for (int step = 0; step < Pingpong::kKeys / 16; ++step) {
    detail::issue<Op>(descriptor(a + (step * kStepBytes >> 4), kRowsHigh),
                      descriptor(b + (step * 16 * kRowBytes >> 4), kRowsHigh), sums,
                      cute::SM90::GMMA::ScaleOut::One, std::make_index_sequence<kHalfSums>{});
  }
}

}  // namespace quire::cuda::sm90::mla_decode
