// SPDX-License-Identifier: Apache-2.0
// Queries: what a thread block knows of its tokens, found once for all their heads.
#pragma once

#include "cuda/any/index_rows/known_steps.cuh"
#include "cuda/any/index_rows/row_steps.cuh"
#include "cuda/any/index_rows/target.cuh"
#include "cuda/common/rows/token_finder.cuh"

namespace quire::cuda::any::index_rows {

template <DType kXType, int kRowLanes, RowSteps kSteps = RowSteps::any> struct QueryRowConfig {
  using Steps = KnownSteps<kSteps>;
  static constexpr bool kLanesHaveRuns = false;
  static constexpr DType kX = kXType;
  static constexpr int kLanes = kRowLanes;
  static constexpr int kThreads = 128;
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kMostTokens = kGroups + 16;             // of a block
  static constexpr int kMinBlocks = kX == DType::f32 ? 4 : 5;  // of a multiprocessor
};

// The tokens of a block. Angles stand by the piece of four, then by the lane: neighbours read neighbours.
template <typename Config> struct QueryTokens {
  static constexpr int kPieces = kTurnedVectors * 2;  // of a lane
  static_assert(Config::kMostTokens <= Config::kThreads);

  TokenTarget targets[Config::kMostTokens];
  float4 angles[Config::kMostTokens][kPieces][Config::kLanes];

  // A lane for each of `count` tokens.
  __device__ void find(const IndexRowParams& params, const QueryTarget& target, std::int64_t first,
                       int count) {
    if (static_cast<int>(threadIdx.x / 32 * 32) >= count) return;
    const TokenFinder finder(params.row_offsets, params.cache_lengths, params.batch);
    const auto t = static_cast<int>(threadIdx.x);
    const TokenPlace place = finder.find(first + t);
    if (t < count) targets[t] = locate(target, place, first + t);
  }

  // When the places are there.
  __device__ void load_angles(const IndexRowParams& params, int count) {
    if (!Config::Steps::turns(params)) return;
    for (int i = threadIdx.x; i < count * Config::kLanes; i += Config::kThreads) {
      const int token = i / Config::kLanes;
      const int lane = i % Config::kLanes;
      if (targets[token].position < 0) continue;
      RowAngles<kVec8> own;
      index_rows::load_angles<Config::kLanes>(params, lane, targets[token].position, own);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const float* four = &own[p / 2][p % 2 * 4];
        angles[token][p][lane] = make_float4(four[0], four[1], four[2], four[3]);
      }
    }
  }

  __device__ void angles_of(int token, int lane, RowAngles<kVec8>& own) const {
#pragma unroll
    for (int v = 0; v < kTurnedVectors; ++v) {
      Eight<DType::f32>::decode({angles[token][2 * v][lane], angles[token][2 * v + 1][lane]},
                                own[v]);
    }
  }
};

}  // namespace quire::cuda::any::index_rows
