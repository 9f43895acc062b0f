// SPDX-License-Identifier: Apache-2.0
// The two groups that attend: S of every second tile each, in turns with the sums (sum_codes.cuh), and the output.
#pragma once

#include "cuda/sm90/mla_decode/fp8_pingpong/code_queries.cuh"
#include "cuda/sm90/mla_decode/fp8_pingpong/shared.cuh"
#include "cuda/sm90/mla_decode/fp8_pingpong/sum_codes.cuh"
#include "cuda/sm90/mla_decode/fp8_pingpong/weigh_codes.cuh"
#include "cuda/sm90/mla_decode/latent/shared.cuh"

namespace quire::cuda::sm90::mla_decode {

template <Fp8PingpongConfig kConfig> class AttendCodes {
 public:
  using Shared = Fp8PingpongShared<kConfig>;

  // `group`: also the parity of its tiles and the half of the columns that it sums.
  __device__ AttendCodes(const LatentParams& params, Shared& shared, int group, int first_row)
      : params_(params),
        shared_(shared),
        group_(group),
        warp_(static_cast<int>(threadIdx.x % 128 / 32)),
        row_(16 * warp_ + static_cast<int>(threadIdx.x % 32 / 4)),
        first_row_(first_row),
        sums_(shared, group),
        weights_(shared, group, row_) {}

  __device__ void run() {
    for (RingPosition<Fp8Pingpong::kWorkTiles> work_tile_at;; work_tile_at.advance()) {
      shared_.work_tile_ring.wait_full(work_tile_at);
      const LatentWorkTile& work_tile = shared_.work_tiles[work_tile_at.stage];
      if (work_tile.tiles == 0) return;
      CodeQueries<kConfig>(params_, shared_, first_row_).load(work_tile, 4 * group_ + warp_);
      sync_groups();
      attend(work_tile);
      finish(work_tile);
      shared_.work_tile_ring.empty[work_tile_at.stage].arrive();
    }
  }

 private:
  using Scores = float[kTileScores];
  static constexpr int kGroups = Fp8Pingpong::kGroups;

  __device__ static void sync_groups() {
    cutlass::arch::NamedBarrier::sync(Fp8Pingpong::kAttendThreads, Fp8Pingpong::kAttendBarrier);
  }
  // Of the CTA's tile `number`, since its start.
  __device__ static int stage_of(unsigned number) {
    return static_cast<int>(number % kConfig.stages);
  }
  __device__ static unsigned phase_of(unsigned number) { return number / kConfig.stages & 1; }

  // Tile `number` is weighed by one group and then summed by both, in order. A group sums the other's last tile and its
  // own after it has weighed its own: the other weighs meanwhile.
  __device__ void attend(const LatentWorkTile& work_tile) {
    const LatentRowMask row_mask(params_, work_tile, params_.splits.rows);
    weights_.begin();
    sums_.clear();
    const unsigned begin = next_;
    const unsigned end = begin + static_cast<unsigned>(work_tile.tiles);
    unsigned number = begin + ((begin ^ static_cast<unsigned>(group_)) & 1);
    Scores scores;
    if (number < end && !kConfig.promotes()) {
      score(number, scores);
      cute::warpgroup_wait<0>();
      pin(scores);
    }
#pragma unroll 1
    for (; number < end; number += 2) {
      if constexpr (kConfig.promotes()) score(number, scores);
      weigh(row_mask, number, number - begin, scores);
#pragma unroll 1
      for (; next_ <= number; ++next_) {
        // The next tile's scores go first: they are there when the last sums are.
        if (!kConfig.promotes() && next_ == number && number + 2 < end) score(number + 2, scores);
        add(next_);
      }
      if constexpr (!kConfig.promotes()) pin(scores);
    }
#pragma unroll 1
    for (; next_ < end; ++next_) add(next_);
  }

  __device__ void weigh(const LatentRowMask& row_mask, unsigned number, unsigned tile,
                        Scores& scores) {
    const int stage = stage_of(number);
    scale_keys(stage, phase_of(number), scores);
    const auto index = static_cast<int>(tile);
    row_mask.hide(index, shared_.valid[stage], first_row_ + row_, scores);
    float before[2] = {-INFINITY, -INFINITY};
    if (tile > 0) {
      shared_.refs_full[group_ ^ 1][warp_].wait((number - 1) / 2 & 1);
#pragma unroll
      for (int i = 0; i < 2; ++i) before[i] = shared_.refs[row_ + 8 * i];
    }
    __syncwarp();
    float to_log2[2] = {params_.to_log2, params_.to_log2};
    if constexpr (kConfig.kind == Fp8RowKind::token) {
      to_log2[0] *= shared_.powers[stage][0];
      to_log2[1] *= shared_.powers[stage][0];
    }
    if constexpr (!kConfig.promotes()) {
      to_log2[0] *= shared_.query_factors[0][row_];
      to_log2[1] *= shared_.query_factors[0][row_ + 8];
    }
    weights_.weigh(scores, to_log2, before, static_cast<int>(number % 4));
    if (number > 1) shared_.weights_empty[group_].wait((number / 2 - 1) & 1);
    const int keys = row_mask.num_keys(index);
    weights_.store(scores, stage);
    if (keys < Fp8Pingpong::kKeys) zero_behind(keys, stage);
    cutlass::arch::fence_view_async_shared();
    shared_.weights_full[group_].arrive();
  }

  __device__ void add(unsigned number) {
    await_weights(number);
    sums_.add(stage_of(number), static_cast<int>(number % 2), static_cast<int>(number % 4));
    release(number);
  }
  __device__ void await_weights(unsigned number) {
    shared_.full[stage_of(number)].wait(phase_of(number));
    shared_.weights_full[number % 2].wait(number / 2 & 1);
  }
  __device__ void release(unsigned number) {
    const auto parity = static_cast<int>(number % 2);
    const int stage = stage_of(number);
    if (parity != group_) shared_.weights_empty[parity].arrive();
    arrive_warp(shared_.empty[stage]);
  }

  // S of a tile: of q as it came where it is promoted, else of q's codes and under way.
  __device__ void score(unsigned number, Scores& scores) {
    const int stage = stage_of(number);
    shared_.full[stage].wait(phase_of(number));
    const std::uint32_t keys = broadcast(descriptor_low(&shared_.latents[stage]));
    const std::uint32_t queries = broadcast(descriptor_low(&shared_.q));
    // Not the last tile's, whose registers would be kept until here.
#pragma unroll
    for (float& each : scores) each = 0.0F;
    pin(scores);
    cute::warpgroup_arrive();
    issue_rope(stage, scores);
    if constexpr (kConfig.promotes()) {
      cute::warpgroup_commit_batch();
      if constexpr (kConfig.kind == Fp8RowKind::block) {
        shared_.scaled[stage].wait(phase_of(number));
      }
      promote_columns(stage, queries, keys, scores);
    } else {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) issue_columns<0>(queries, keys, g, false, scores);
      cute::warpgroup_commit_batch();
    }
  }
  // Products of rows with one scale become theirs, but for a power of two.
  __device__ void scale_keys(int stage, unsigned phase, Scores& scores) const {
    if constexpr (kConfig.kind == Fp8RowKind::token) {
      shared_.scaled[stage].wait(phase);
#pragma unroll
      for (int j = 0; j < kTileScores; j += 4) {
        const float2 by = weights_.ratios(stage, 0, j / 4);
        scores[j] *= by.x;
        scores[j + 1] *= by.y;
        scores[j + 2] *= by.x;
        scores[j + 3] *= by.y;
      }
    }
  }

  // scores += products of the latent columns, 128 at a time.
  __device__ void promote_columns(int stage, std::uint32_t queries, std::uint32_t keys,
                                  Scores& scores) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      Scores products;
      pin(products);
      cute::warpgroup_arrive();
      issue_columns<0>(queries, keys, g, true, products);
      if constexpr (kConfig.terms == 2) issue_columns<1>(queries, keys, g, false, products);
      cute::warpgroup_commit_batch();
      float factor[2] = {shared_.query_factors[g][row_], shared_.query_factors[g][row_ + 8]};
      if constexpr (kConfig.kind == Fp8RowKind::block) {
        factor[0] *= shared_.powers[stage][g];
        factor[1] *= shared_.powers[stage][g];
      }
      cute::warpgroup_wait<0>();
      pin(products);
      if (g == 0) finish_rope(scores);
#pragma unroll
      for (int j = 0; j < kTileScores; j += 4) {
        const float2 by = kConfig.kind == Fp8RowKind::block ? weights_.ratios(stage, g, j / 4)
                                                            : float2{1.0F, 1.0F};
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          scores[j + i] = fmaf(products[j + i] * by.x, factor[i / 2], scores[j + i]);
          scores[j + i + 1] = fmaf(products[j + i + 1] * by.y, factor[i / 2], scores[j + i + 1]);
        }
      }
    }
  }

  // Products of 128 columns.
  template <int kTerm>
  __device__ static void issue_columns(std::uint32_t queries, std::uint32_t keys, int g,
                                       bool starts, Scores& products) {
    using Op = typename CodeProduct<kTerm>::Scores;
#pragma unroll
    for (int step = 0; step < kRowBytes / kStepBytes; ++step) {
      const std::uint32_t bytes = g * Fp8Pingpong::kColumnBytes + step * kStepBytes;
      const std::uint32_t term = kTerm * kGroups * Fp8Pingpong::kColumnBytes;
      detail::issue<Op>(descriptor(queries + (term + bytes >> 4), kRowsHigh),
                        descriptor(keys + (bytes >> 4), kRowsHigh), products,
                        starts && step == 0 ? gmma::ScaleOut::Zero : gmma::ScaleOut::One,
                        std::make_index_sequence<kTileScores>{});
    }
  }

  // scores = products of the rope columns.
  __device__ void issue_rope(int stage, Scores& scores) {
    const std::uint32_t queries = broadcast(descriptor_low(&shared_.q_rope));
    const std::uint32_t keys = broadcast(descriptor_low(&shared_.rope[stage]));
    if constexpr (kConfig.kind == Fp8RowKind::uniform) {
      issue_codes_of_rope<0>(queries, keys, scores);
      if constexpr (kConfig.terms == 2) issue_codes_of_rope<1>(queries, keys, scores);
    } else {
      using Op = Wgmma<DType::bf16, Fp8Pingpong::kKeys>;
#pragma unroll
      for (int step = 0; step < kRowBytes / kStepBytes; ++step) {
        const std::uint32_t bytes = step * kStepBytes;
        detail::issue<Op>(descriptor(queries + (bytes >> 4), kRowsHigh),
                          descriptor(keys + (bytes >> 4), kRowsHigh), scores,
                          step == 0 ? gmma::ScaleOut::Zero : gmma::ScaleOut::One,
                          std::make_index_sequence<kTileScores>{});
      }
    }
  }
  template <int kTerm>
  __device__ static void issue_codes_of_rope(std::uint32_t queries, std::uint32_t keys,
                                             Scores& scores) {
    using Op = typename CodeProduct<kTerm>::Scores;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const std::uint32_t bytes = step * kStepBytes;
      detail::issue<Op>(descriptor(queries + (64 * kTerm + bytes >> 4), kRowsHigh),
                        descriptor(keys + (bytes >> 4), kHalfRowsHigh), scores,
                        kTerm == 0 && step == 0 ? gmma::ScaleOut::Zero : gmma::ScaleOut::One,
                        std::make_index_sequence<kTileScores>{});
    }
  }
  __device__ void finish_rope(Scores& scores) const {
    pin(scores);
    if constexpr (kConfig.kind == Fp8RowKind::uniform) {
      const float factor[2] = {shared_.query_factors[kGroups][row_],
                               shared_.query_factors[kGroups][row_ + 8]};
      scale_rows(scores, factor);
    }
  }

  // Rows behind the sequence's end, in its last page, may hold anything, and 0 · NaN is NaN.
  __device__ void zero_behind(int keys, int stage) const {
    constexpr int kChunks = kRowBytes / 16;
#pragma unroll 1
    for (int g = 0; g < kGroups; ++g) {
      auto* chunks = reinterpret_cast<uint4*>(shared_.latents[stage][g]);
#pragma unroll 1
      for (int chunk = keys * kChunks + static_cast<int>(threadIdx.x % 128);
           chunk < Fp8Pingpong::kKeys * kChunks; chunk += 128) {
        chunks[chunk] = uint4{};
      }
    }
  }

  __device__ void finish(const LatentWorkTile& work_tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = quad_sum(weights_.sums()[i]);
      if (threadIdx.x % 4 == 0) shared_.stats[group_][row_ + 8 * i] = {weights_.refs()[i], sum};
    }
    sync_groups();
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < Fp8Pingpong::kRows) shared_.targets[thread] = end(work_tile, thread);
    sync_groups();
    if (work_tile.slot >= 0) {
      store<true>();
    } else {
      store<false>();
    }
  }

  // Of the CTA's row `own`.
  __device__ CodedRowEnd end(const LatentWorkTile& work_tile, int own) const {
    const int row = first_row_ + own;
    if (row >= work_tile.rows) return {.out = nullptr, .factor = 0.0F};
    const float2 even = shared_.stats[0][own];
    const float2 odd = shared_.stats[1][own];
    // NaN where one is.
    const float max = even.x > odd.x || even.x != even.x ? even.x : odd.x;
    const float sum = even.y * rebased(even.x, max) + odd.y * rebased(odd.x, max);
    if (work_tile.slot >= 0) {
      const std::int64_t at = work_tile.slot * params_.splits.rows + row;
      params_.splits.stats[at] = {max, sum};
      return {.out = reinterpret_cast<std::byte*>(params_.splits.sums + at * LatentConfig::kLatent),
              .factor = 1.0F};
    }
    const AttendOutput& outputs = params_.outputs;
    const std::int64_t token = work_tile.first_token + row / params_.heads;
    const int head = row % params_.heads;
    const RowEnd ended = end_row(outputs, head, max, sum);
    if (outputs.lse != nullptr) {
      outputs.lse[token * outputs.lse_token_stride + head * outputs.lse_head_stride] = ended.lse;
    }
    return {.out = outputs.out + token * outputs.token_bytes + head * outputs.head_bytes,
            .factor = ended.factor};
  }

  template <bool kIsSplit> __device__ void store() const {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const int column = group_ * 256 + warp_ * 16 + lane / 4 * 2;
    const CodedRowEnd* targets = &shared_.targets[lane % 4 * 2];
    CodedRowEnd next = targets[0];
#pragma unroll
    for (int row = 0; row < Fp8Pingpong::kRows / 4; ++row) {
      const CodedRowEnd target = next;
      if (row + 1 < Fp8Pingpong::kRows / 4) next = targets[(row + 1) / 2 * 8 + (row + 1) % 2];
      if (target.out == nullptr) continue;
#pragma unroll
      for (int part = 0; part < CodeSums<kConfig>::kParts; ++part) {
        const float2 two = sums_.pair(part, row / 2, row % 2);
        const int at = column + 64 * part;
        if constexpr (kIsSplit) {
          *reinterpret_cast<float2*>(target.out + at * 4) = two;
        } else {
          *reinterpret_cast<std::uint32_t*>(target.out + at * 2) =
              pack_pair<DType::bf16>(two.x * target.factor, two.y * target.factor);
        }
      }
    }
  }

  const LatentParams& params_;
  Shared& shared_;
  const int group_;
  const int warp_;  // of the group
  const int row_;   // of the CTA, the thread's first; the second stands 8 below it
  const int first_row_;
  unsigned next_ = 0;  // tile to be summed, since the CTA's start
  CodeSums<kConfig> sums_;
  WeighCodes<kConfig> weights_;
};

}  // namespace quire::cuda::sm90::mla_decode
