// SPDX-License-Identifier: Apache-2.0
// The warpgroup that scores: scores and values of a work tile's tiles into shared memory. What a thread has of a tile:
// swap_ab/shared.cuh.
#pragma once

#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_decode/fp8_wgmma/shared.cuh"
#include "cuda/sm90/mla_decode/swap_ab/load_units.cuh"
#include "cuda/sm90/mla_decode/swap_ab/operands.cuh"
#include "cuda/sm90/mla_decode/swap_ab/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

// 64 keys × the query rows of a work tile: the products of the scores, and the keys' numbers as values for those who sum.
// While the tensor cores have 64 columns, the next 64 are fetched and converted.
//
// Values of the tile before are still being summed while a tile is scored, and there is one place for them. So nothing is
// stored then: columns are fetched and converted again, when the scores have been handed on.

template <SwapAbConfig kConfig> class ScoreValues {
 public:
  static constexpr int kSums = kConfig.rows / 2;  // of a thread
  using Sums = float[kSums];

  // `warp`: of the four.
  __device__ ScoreValues(const LatentRowFormat& format, Fp8WgmmaShared<kConfig>& shared, int warp)
      : format_(format), shared_(shared), values_at_(own_values(shared, warp)) {}

  // `place`: of this warp's unit, which is there. Scores are the rows' own, scaled.
  __device__ void score(int place, const LatentKeyFactors& factors, Sums& scores) const {
    typename Op::Raw raw;
    Words words[2];
    const std::byte* at = keys(place);
    const std::uint32_t q = broadcast(descriptor_low(&shared_.q));
    fetch(at, column_of(0), raw);
    pin(scores);
#pragma unroll
    for (int block = 0; block < SwapAbConfig::kBlocks; ++block) {
      Words& own = words[block % 2];
      Op::convert(raw, own);
      if (block + 1 < SwapAbConfig::kBlocks) fetch(at, column_of(block + 1), raw);
      scale_words(column_of(block) / kGroupColumns, factors, own);
      start_product<DType::f16, kConfig.rows>(own, q + swizzle_column_offset_of(block), scores,
                                              block == 0);
      cute::warpgroup_wait<1>();
    }
    scale_scores(factors, scores);
    score_rope(at, q, words[0], scores);
    cute::warpgroup_wait<0>();
    pin(scores);
  }

  // `tile`: of the block.
  __device__ void store(int tile, int place, const LatentKeyFactors& factors) const {
    const std::byte* at = keys(place);
#pragma unroll
    for (int block = 0; block < SwapAbConfig::kBlocks; ++block) {
      typename Op::Raw raw;
      Words words;
      fetch(at, column_of(block), raw);
      Op::convert(raw, words);
      scale_words(column_of(block) / kGroupColumns, factors, words);
      store_values(tile, block, words);
    }
  }

 private:
  using Shared = Fp8WgmmaShared<kConfig>;
  using Op = KeyOperands<kConfig.kind>;
  using Words = std::uint32_t[kOperandWords];
  static constexpr int kGroupColumns = LatentConfig::kLatent / SwapAbConfig::kScaleGroups;
  static constexpr int kPartBlocks = Fp8Wgmma::kPartSwizzleColumns;

  __device__ const std::byte* keys(int place) const {
    return shared_.units[place] + Op::place(static_cast<int>(threadIdx.x % 32));
  }

  // `at`: a lane's place in its unit. Columns of one byte.
  __device__ static void fetch(const std::byte* at, int column, typename Op::Raw& raw) {
    Op::fetch_fp8(at, 0, column / 16, raw);
  }

  // Blocks come in the order of the parts.
  __device__ static constexpr int part_of(int block) {
    return block / kPartBlocks;
  }
  __device__ static constexpr int column_of(int block) {
    return Fp8Wgmma::first_column(part_of(block)) +
           block % kPartBlocks * LatentConfig::kSwizzleColumnWidth;
  }
  __device__ static constexpr std::uint32_t swizzle_column_offset_of(int block) {
    return column_of(block) / LatentConfig::kSwizzleColumnWidth * Shared::kSwizzleColumnBytes >> 4;
  }

  // Where a lane's row of the warp's 16 and its first split are in the first swizzle column of values.
  __device__ static int own_values(Shared& shared, int warp) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const int offset = swizzle_column_offset(SwapAbConfig::kUnitKeys * warp + lane % 16, lane / 16);
    return static_cast<int>(__cvta_generic_to_shared(&shared.values)) + offset;
  }

  __device__ static void scale_words(int group, const LatentKeyFactors& factors, Words& words) {
#pragma unroll
    for (int i = 0; i < kOperandWords; ++i) {
      auto& pair = reinterpret_cast<__half2&>(words[i]);
      pair = __hmul2(pair, factors.left_of(i % 2, group));
    }
  }

  __device__ void store_values(int tile, int block, const Words& words) const {
    constexpr int kPartBytes = sizeof(Shared::values) / Fp8Wgmma::kParts;
    const int part = part_of(block);
    if (block % kPartBlocks == 0) shared_.values_empty[part].wait((tile & 1) ^ 1);
    // Opaque: all parts' addresses would be kept from tile to tile, and spilled.
    const int first = opaque(values_at_) + part * kPartBytes +
                      block % kPartBlocks * Shared::kValueSwizzleColumnBytes;
#pragma unroll
    for (int step = 0; step < 4; ++step) store_matrices(first ^ 32 * step, &words[4 * step]);
  }
  // Four 8 × 8 matrices; a lane has the address of row lane % 8 of number lane / 8.
  __device__ static void store_matrices(int row, const std::uint32_t* words) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  __device__ static void scale(const LatentKeyFactors& factors, Sums& scores) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) scores[i] *= factors.whole[i / 2 % 2];
  }
  // Before rope columns without scales are added.
  __device__ static void scale_scores(const LatentKeyFactors& factors, Sums& scores) {
    cute::warpgroup_wait<0>();
    pin(scores);
    scale(factors, scores);
    pin(scores);
  }

  __device__ void score_rope(const std::byte* at, std::uint32_t q, Words& words,
                             Sums& scores) const {
    const std::uint32_t swizzle_column =
        q + (SwapAbConfig::kBlocks * Shared::kSwizzleColumnBytes >> 4);
    const std::byte* rope = at + format_.rope_offset_bytes;
    Op::fetch_bf16(rope, 0, 0, words);
    start_product<DType::bf16, kConfig.rows>(words, swizzle_column, scores, false);
  }

  const LatentRowFormat& format_;
  Shared& shared_;
  const int values_at_;
};

template <SwapAbConfig kConfig> class ScoreTiles {
 public:
  // `first_row`: of the work tile, this block's.
  __device__ ScoreTiles(const MlaDecodeParams& params, Fp8WgmmaShared<kConfig>& shared,
                        int first_row)
      : format_(params.format),
        shared_(shared),
        warp_(__shfl_sync(0xffffffff, static_cast<int>(threadIdx.x % 128 / 32), 0)),
        queries_(params.attend, shared, false, first_row),
        products_(params.format, shared, warp_) {}

  __device__ void run() {
    RingPosition<SwapAbConfig::kWorkTiles> work_tile_at;
    for (int parity = 0;; work_tile_at.advance(), parity ^= 1) {
      shared_.work_tile_ring.wait_full(work_tile_at);
      const LatentWorkTile& work_tile = shared_.work_tiles[work_tile_at.stage];
      const int tiles = work_tile.tiles;
      if (tiles == 0) return;
      sync_scores();  // all products with the queries before these are done
      queries_.template load<Fp8Wgmma::kScoreWarps>(work_tile, warp_,
                                                    shared_.query_factors[parity]);
      sync_scores();
      for (int tile = 0; tile < tiles; ++tile, ++tile_) score();
      shared_.work_tile_ring.empty[work_tile_at.stage].arrive();
    }
  }

 private:
  using Rows = ThreadRows<kConfig>;

  __device__ static void sync_scores() {
    cutlass::arch::NamedBarrier::sync(32 * Fp8Wgmma::kScoreWarps, 1);
  }

  __device__ void score() {
    const UnitPlace<kConfig> at(tile_, warp_);
    shared_.full[at.place].wait(at.phase);
    const int live = shared_.live[at.place];
    if (live < SwapAbConfig::kUnitKeys) zero_from(live, at.place);
    const LatentKeyFactors factors(format_, shared_.units[at.place], live);
    float scores[Rows::kScores];
    products_.score(at.place, factors, scores);
    shared_.scores_empty.wait((tile_ & 1) ^ 1);
    leave_scores(scores);
    if (Rows::lane() % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) shared_.key_factors[own_key(i)] = factors.whole[i];
    }
    if (Rows::lane() == 0) reinterpret_cast<int*>(&shared_.tile_live)[warp_] = live;
    shared_.scores_full.arrive();
    products_.store(tile_, at.place, factors);
    shared_.empty[at.place].arrive();
    cutlass::arch::fence_view_async_shared();
    shared_.values_full.arrive();
  }

  // Of the tile.
  __device__ int own_key(int i) const {
    return SwapAbConfig::kUnitKeys * warp_ + Rows::key() + 8 * i;
  }

  // Eight rows further, a score stands in the same place of its row.
  __device__ void leave_scores(const float (&scores)[Rows::kScores]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float* first = &shared_.scores[score_place(Rows::row(i % 2), opaque(own_key(i / 2)))];
#pragma unroll
      for (int j = 0; j < Rows::kScores / 4; ++j) {
        first[8 * SwapAbConfig::kKeys * j] = scores[4 * j + i];
      }
    }
  }

  // Rows behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
  __device__ void zero_from(int row, int place) const {
    constexpr int kChunks = LatentConfig::kLatent / 16;
    static_assert(kChunks == 32);
#pragma unroll 1
    for (; row < SwapAbConfig::kUnitKeys; ++row) {
      *reinterpret_cast<uint4*>(shared_.units[place] + SpacedRows::offset(row, Rows::lane())) =
          uint4{};
    }
    cutlass::arch::fence_view_async_shared();  // the next copy to this place
    __syncwarp();
  }

  const LatentRowFormat& format_;
  Fp8WgmmaShared<kConfig>& shared_;
  const int warp_;  // of the group
  const LoadTileQueries<kConfig, Fp8WgmmaShared<kConfig>> queries_;
  const ScoreValues<kConfig> products_;
  int tile_ = 0;
};

}  // namespace quire::cuda::sm90::mla_decode
