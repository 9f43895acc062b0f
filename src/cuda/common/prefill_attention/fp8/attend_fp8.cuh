// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup with products of e4m3: as roles/attend.cuh, with q rounded when it arrives,
// sums of one block of keys by the tensor cores and sums of blocks in fp32.
#pragma once

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/prefill_attention/convert_queries.cuh"
#include "cuda/common/prefill_attention/epilogue.cuh"
#include "cuda/common/prefill_attention/fp8/load_transposed.cuh"
#include "cuda/common/prefill_attention/products.cuh"
#include "cuda/common/prefill_attention/query_rows.cuh"
#include "cuda/common/prefill_attention/run_roles.cuh"
#include "cuda/common/prefill_attention/shared.cuh"

namespace quire::cuda {

// sums = weights · V over one block. The tensor cores keep 13 bits against the sum they add to:
// sums of more keys are made in fp32 (measured, 4096 positive products: 7.4 % low in one go, 0.05 %
// in sums of 128).
template <PrefillConfig kConfig>
__device__ inline void issue_fp8_values(const std::uint32_t (&weights)[kConfig.block_keys / 8],
                                        const std::byte* values,
                                        float (&sums)[kConfig.value_dim / 2]) {
  static_assert(kConfig.block_keys == kRowBytes);
  using Op = RowWgmma<DType::fp8_e4m3, kConfig.value_dim>;
  const std::uint64_t b = tile_descriptor(values);
#pragma unroll
  for (int step = 0; step < kRowBytes / kStepBytes; ++step) {
    detail::issue<Op>(
        &weights[4 * step], b + step * (kStepBytes >> 4), sums,
        step == 0 ? cute::SM90::GMMA::ScaleOut::Zero : cute::SM90::GMMA::ScaleOut::One,
        std::make_index_sequence<kConfig.value_dim / 2>{});
  }
}

// The same by itself, as a group of products.
template <PrefillConfig kConfig>
__device__ inline void start_fp8_sum(std::uint32_t (&weights)[kConfig.block_keys / 8],
                                     const std::byte* values,
                                     float (&sums)[kConfig.value_dim / 2]) {
  pin(sums);
  pin(weights);
  cute::warpgroup_arrive();
  issue_fp8_values<kConfig>(weights, values, sums);
  cute::warpgroup_commit_batch();
}

// Weights as e4m3, where the product with transposed V takes them from.
//
// The instruction wants four neighbouring keys in a word, a thread has pairs 8 apart: keys are
// taken in the order that makes its pairs neighbours, and V's columns stand in the same order
// (key_at_place() in transpose_values.h). Nothing moves.

template <int kWords, int kScores>
__device__ inline void pack_weights(const float (&scores)[kScores], int first,
                                    std::uint32_t (&weights)[kWords]) {
  // 16 scores are two groups of 8 keys of two rows.
#pragma unroll
  for (int j = first; j < first + 16; j += 8) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      weights[j / 4 + i] = pack_e4m3(scores[j + 2 * i], scores[j + 2 * i + 1],
                                     scores[j + 4 + 2 * i], scores[j + 5 + 2 * i]);
    }
  }
}

// As RowSoftmax::weigh(); beside(part, parts) is done under each part's exponentials.
template <int kScores, typename Beside>
__device__ inline void weigh_fp8(LazySoftmax& softmax, float (&scores)[kScores],
                                 const float (&to_log2)[2], std::uint32_t (&weights)[kScores / 4],
                                 const Beside& beside) {
  constexpr int kPart = 16;
  constexpr int kParts = kScores / kPart;
  const float offset[2] = {softmax.offset<DType::fp8_e4m3>(to_log2[0], 0),
                           softmax.offset<DType::fp8_e4m3>(to_log2[1], 1)};
  float odd[2] = {0.0F, 0.0F};
#pragma unroll
  for (int part = 0; part <= kParts; ++part) {
#pragma unroll
    for (int j = part * kPart; part < kParts && j < (part + 1) * kPart; ++j) {
      scores[j] = exp2_approx(fmaf(scores[j], to_log2[j / 2 % 2], -offset[j / 2 % 2]));
    }
    if (part < kParts) beside(part, kParts);
    if (part == 0) continue;
#pragma unroll
    for (int j = (part - 1) * kPart; j < part * kPart; j += 2) {
      softmax.sum[j / 2 % 2] += scores[j];
      odd[j / 2 % 2] += scores[j + 1];
    }
    pack_weights(scores, (part - 1) * kPart, weights);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) softmax.sum[i] += odd[i];
}

// Keys that all rows of a tile see, where registers are for scores and sums.

// Where V, whose products want neighbouring keys in neighbouring bytes, is transposed.
enum class Transpose : std::uint8_t {
  before,  // once for all rows, in the workspace (transpose_values.h, sm90/flash_attention/prefill/fp8/kernel.cuh)
  in_place,  // in shared memory, by the warps that load it, for every tile (load_transposed.cuh)
};

// In shared memory, each warp's own, or found anew for each block: that costs 1 % of long tiles, but
// a register less.
template <PrefillConfig kConfig, Transpose kTranspose> class SeenKeys {
 public:
  // By a whole warp, at the beginning of a tile.
  __device__ static void look_over(const PrefillParams& params, const PrefillTile& tile) {
    if constexpr (!kFindsAnew) {
      warps_own() = seen_by_all<kConfig>(params, tile);  // the same by all lanes
      __syncwarp();
    }
  }
  __device__ static KeyInterval by_all(const PrefillParams& params, const PrefillTile& tile) {
    if constexpr (kFindsAnew) {
      return seen_by_all<kConfig>(params, tile);
    } else {
      return warps_own();
    }
  }

 private:
  static constexpr bool kFindsAnew =
      kTranspose == Transpose::in_place && kConfig.ends == Ends::finished;

  __device__ static KeyInterval& warps_own() {
    __shared__ KeyInterval intervals[4 * kConfig.consumers];
    return intervals[threadIdx.x / 32 - 4];
  }
};

template <PrefillConfig kConfig, Transpose kTranspose> class Fp8Attend {
 public:
  using Shared = PrefillShared<kConfig>;
  using Step = StepProducts<kConfig>;
  using Block = typename Step::Block;
  using Weights = std::uint32_t[kConfig.block_keys / 8];
  using Sums = typename Step::Sums;
  using Seen = SeenKeys<kConfig, kTranspose>;
  static constexpr DType kProduct = DType::fp8_e4m3;
  static_assert(kConfig.scores == Scores::scaled);

  __device__ Fp8Attend(const PrefillParams& params, Shared& shared, int consumer)
      : params_(params), shared_(shared), order_(consumer), row_(consumer * kWgmmaRows) {}

  __device__ void run() {
    PrefillTile tile = next_tile();
    if (tile.sequence < 0) return;
    Block scores;
    Weights weights;
    Sums sums;   // of all blocks but the last whose products ran
    Sums block;  // of that one
    start(tile, scores);
    while (tile.sequence >= 0) {
      if (tile.end_block - tile.first_block == 1) release_queries();
      Seen::look_over(params_, tile);
      LazySoftmax softmax;
      begin(tile, softmax, scores, weights, sums);
      for (int at = tile.end_block - 2; at >= tile.first_block; --at) {
        step(tile, at, softmax, scores, weights, sums, block);
      }
      tile = finish(tile, softmax, scores, weights, sums, block);
    }
  }

 private:
  __device__ int thread_row() const {
    return row_ + static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  }
  __device__ std::byte* queries() const { return &shared_.q[q_at_.stage][row_ * kRowBytes]; }
  __device__ PrefillTile next_tile() { return shared_.take_tile(tile_at_); }
  __device__ bool leads() const { return threadIdx.x % 128 == 0; }
  // One thread speaks for all: it has seen the end of their products, and nobody else reads V.
  __device__ void free_values(int stage) {
    if (leads()) shared_.value_ring.empty[stage].arrive();
  }
  // The tile's last scores are there: the next tile's q may come.
  __device__ void release_queries() {
    if (leads()) shared_.q_ring(row_).empty[q_at_.stage].arrive();
  }

  // q of the tile at q_at_, rounded.
  __device__ void await_queries(const PrefillTile& tile) {
    shared_.q_ring(row_).wait_full(q_at_);
    QueryRounding<kConfig>(queries()).run(to_log2_);
    const float scale = params_.scores.scale * kLog2e * params_.scales.of_keys(tile.kv_head);
    to_log2_[0] *= scale;
    to_log2_[1] *= scale;
    sync_warpgroup();
  }
  // What all threads of the warpgroup have written, for products to read.
  __device__ void sync_warpgroup() const {
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(128, kConfig.consumers + opaque(row_) / kWgmmaRows);
  }

  // The very first scores, alone.
  __device__ void start(const PrefillTile& tile, Block& scores) {
    await_queries(tile);
    shared_.await_keys(key_at_);
    holes_ = shared_.holes[key_at_.stage];
    Step::start_scores(queries(), shared_.keys[key_at_.stage], scores);
    cute::warpgroup_wait<0>();
    pin(scores);
    shared_.free_keys(key_at_.stage);
    key_at_.advance();
  }

  // A tile's first block of keys: scores are there, nothing is summed.
  __device__ void begin(const PrefillTile& tile, LazySoftmax& softmax, Block& scores,
                        Weights& weights, Sums& sums) {
#pragma unroll
    for (int j = 0; j < kConfig.value_dim / 2; ++j) sums[j] = 0.0F;
    prepare(tile, tile.end_block - 1, scores);
    softmax.start<kProduct>(scores, to_log2_);
    weigh_fp8(softmax, scores, to_log2_, weights, [](int, int) {});
  }

  // From products to scores that the softmax may take.
  __device__ void prepare(const PrefillTile& tile, int block, Block& scores) const {
    const int first = tile.first_key + block * kConfig.block_keys;
    const KeyInterval all_see = Seen::by_all(params_, tile);
    if (holes_ != 0 || first < all_see.first || first + kConfig.block_keys > all_see.end) {
      hide<kConfig>(params_, tile, thread_row(), first, holes_, scores);
    }
  }

  // Scores of block `at` beside the sum over the one before it.
  __device__ void step(const PrefillTile& tile, int at, LazySoftmax& softmax, Block& scores,
                       Weights& weights, Sums& sums, Sums& block) {
    if (at == tile.end_block - 2) await_stages();
    const int key_stage = key_at_.stage;
    const int value_stage = value_at_.stage;
    key_at_.advance();
    value_at_.advance();
    // By all lanes, before the products behind which one of them frees the stage: told by one (shared.cuh)
    // they know it too late, 4096 tokens take 1 % more.
    holes_ = shared_.holes[key_stage];
    order_.wait();
    issue(key_stage, value_stage, scores, weights, block);
    order_.pass_on();
    // While the products run: the next step's stages, which seldom are late.
    if (at > tile.first_block) await_stages();
    cute::warpgroup_wait<1>();
    pin(scores);
    shared_.free_keys(key_stage);
    if (at == tile.first_block) release_queries();
    prepare(tile, at, scores);
    float keep[2];
    const bool rises = softmax.rise<kProduct>(scores, to_log2_, keep);
    end_sum(sums, block, rises, keep);
    pin(weights);
    free_values(value_stage);
    weigh_fp8(softmax, scores, to_log2_, weights, [&](int part, int parts) {
      const int each = kConfig.value_dim / 2 / parts;
#pragma unroll
      for (int k = part * each; k < (part + 1) * each; ++k) sums[k] += block[k];
    });
  }

  // The K block of the next scores and the V block of the next sum.
  __device__ void await_stages() {
    shared_.await_keys(key_at_);
    await_values();
  }
  // Whoever has transposed V has also put zeros in the place of what stands behind the last key.
  __device__ void await_values() {
    if constexpr (kTranspose == Transpose::before) {
      shared_.await_values(value_at_);
    } else {
      shared_.values_ready[value_at_.stage].wait(value_at_.phase);
    }
  }

  // The block's sum has ended; it and what was summed before, in units of the new references. The
  // assembler moves a wait up as far as it can, but not across a branch (roles/attend.cuh).
  __device__ static void end_sum(Sums& sums, Sums& block, bool rises, const float (&keep)[2]) {
    if (!rises) {
      asm volatile("wgmma.wait_group.sync.aligned 0; // kept" ::: "memory");
      pin(block);
    } else {
      asm volatile("wgmma.wait_group.sync.aligned 0; // scaled" ::: "memory");
      pin(block);
      scale_rows(sums, keep);
      scale_rows(block, keep);
    }
  }

  __device__ void issue(int key_stage, int value_stage, Block& scores, Weights& weights,
                        Sums& block) {
    pin(scores);
    pin(block);
    pin(weights);
    cute::warpgroup_arrive();
    issue_scores<kConfig>(queries(), shared_.keys[key_stage], scores);
    cute::warpgroup_commit_batch();
    issue_fp8_values<kConfig>(weights, shared_.values[value_stage], block);
    cute::warpgroup_commit_batch();
  }

  // The sum over the tile's last block runs while the next tile's q is rounded, the first scores of
  // that one while rows are stored. Without a next tile they are of whatever is there: nobody reads them.
  __device__ PrefillTile finish(const PrefillTile& tile, RowSoftmax softmax, Block& scores,
                                Weights& weights, Sums& sums, Sums& block) {
    into_log2_units(softmax, to_log2_);  // the next tile's factors take the place of these
    const std::uint32_t links =
        kConfig.ends == Ends::chained ? __ldg(params_.chain.links) : 0;  // arrives meanwhile
    await_values();
    order_.wait();
    start_fp8_sum<kConfig>(weights, shared_.values[value_at_.stage], block);
    order_.pass_on();
    const PrefillTile next = next_tile();
    q_at_.advance();
    if (next.sequence >= 0) {
      shared_.await_keys(key_at_);
      holes_ = shared_.holes[key_at_.stage];
      await_queries(next);
    }
    Step::start_scores(queries(), shared_.keys[key_at_.stage], scores);
    cute::warpgroup_wait<1>();
    pin(block);
    pin(weights);
    free_values(value_at_.stage);
    value_at_.advance();
    store(tile, links, softmax, sums, block);
    cute::warpgroup_wait<0>();
    pin(scores);
    if (next.sequence >= 0) shared_.free_keys(key_at_.stage);
    key_at_.advance();
    return next;
  }
  __device__ void store(const PrefillTile& tile, std::uint32_t links, const RowSoftmax& softmax,
                        Sums& sums, const Sums& block) {
#pragma unroll
    for (int j = 0; j < kConfig.value_dim / 2; ++j) sums[j] += block[j];
    if constexpr (kConfig.ends == Ends::chained) {
      const float as_they_are[2] = {1.0F, 1.0F};
      chain_rows<kConfig>(params_, links, tile, thread_row(), softmax, as_they_are, sums);
    } else {
      store_staged<kConfig>(params_, tile, thread_row(), softmax, sums);
    }
  }

  const PrefillParams& params_;
  Shared& shared_;
  WarpgroupOrder<kConfig.consumers> order_;
  const int row_;                    // the warpgroup's first, in a tile
  float to_log2_[2] = {1.0F, 1.0F};  // from products to scores, with what q and K were divided by
  std::uint32_t holes_ = 0;          // in the keys of the scores
  RingPosition<kConfig.key_stages> key_at_;
  RingPosition<kConfig.value_stages> value_at_;
  RingPosition<kConfig.q_buffers> q_at_;
  RingPosition<Shared::kTileRing> tile_at_;
};

// The roles of a prefill kernel with products of e4m3 whose V comes as it is: as run_roles.cuh has
// them, but those who load V transpose it, and consumers are others.

template <PrefillConfig kConfig, typename Source>
__device__ inline void run_fp8(const PrefillParams& params, const typename Source::Params& source) {
  run_block<kConfig, Source, Fp8Attend<kConfig, Transpose::in_place>>(
      params, source, [&](PrefillShared<kConfig>& shared) {
        const int half = warp_in_block() % 2;
        if (warp_in_block() >= 2) {
          TransposingLoad<kConfig, Source>(source, shared, half).run();
          return;
        }
        PrefillLoad<kConfig, Source> load(params, source, shared, half);
        if (half == 0) {
          load.lead();
        } else {
          load.load_keys();
        }
      });
}

// The prefill kernel with products of e4m3 that transposes V itself, whatever its keys come from.

template <typename Variant, typename Source>
__global__ void __launch_bounds__(Variant::kConfig.threads(), 1)
    transposing_kernel(const __grid_constant__ PrefillParams params,
                       const __grid_constant__ typename Source::Params keys) {
  run_fp8<Variant::kConfig, Source>(params, keys);
}

}  // namespace quire::cuda
