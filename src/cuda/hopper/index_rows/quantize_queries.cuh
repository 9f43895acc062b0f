// SPDX-License-Identifier: Apache-2.0
// The kernel of quantize_index_queries for rows of 64 or 128 columns, none or half of them turned: 2 or 4
// lanes hold a row in registers, every byte is read and written once, in vectors of 16 (8 for codes).
// A block finds the places of its tokens while its first rows are on their way, and a group of lanes has
// its next row on the way while it works on one.
#pragma once

#include <algorithm>

#include "cuda/hopper/index_rows/quantize_row.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

template <DType kXType, int kRowLanes> struct QueryRowConfig {
  static constexpr DType kX = kXType;
  static constexpr int kLanes = kRowLanes;
  static constexpr int kThreads = 128;
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kMostRows = 4;                          // of a group, one after the other
  static constexpr int kMinBlocks = kX == DType::f32 ? 4 : 5;  // of a multiprocessor
};

// A row of the block, and where a lane reads it.
struct RowCursor {
  int token;
  int head;
  const std::byte* x;

  __device__ RowCursor(const IndexRowParams& params, std::int64_t first_token, int token, int head)
      : token(token),
        head(head),
        x(params.x + (first_token + token) * params.token_bytes + head * params.head_bytes) {}
  __device__ void advance(const IndexRowParams& params, int heads) {
    x += params.head_bytes;
    if (++head < heads) return;
    x += params.token_bytes - heads * params.head_bytes;
    head = 0;
    ++token;
  }
};

template <typename Config> class RowQuantizer {
 public:
  using X = Eight<Config::kX>;
  using Raw = typename X::Raw[kRowVectors];

  __device__ RowQuantizer(const IndexRowParams& params, const QueryTarget& target)
      : params_(params), target_(target), lane_(threadIdx.x % Config::kLanes) {
    // Kept in a register: worked out again at every use, it is a tenth of a row's instructions.
    asm volatile("" : "+r"(lane_));
  }

  __device__ int lane() const { return lane_; }

  // x: at the lane's first column.
  __device__ void load(const std::byte* x, Raw& raw) const {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) raw[v] = X::load(x + v * kStep * (bits(Config::kX) / 8));
  }

  __device__ static void copy(const Raw& from, Raw& to) {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) to[v] = from[v];
  }

  __device__ void load_angles(std::int64_t position, RowAngles& angles) const {
    if (params_.freqs == nullptr || position < 0) return;
    hopper::load_angles<Config::kLanes>(params_, lane_, position, angles);
  }

  // All lanes of a warp take part, whether their row is written or not.
  __device__ void store(const Raw& raw, const RowAngles& angles, const TokenTarget& token, int head,
                        float gate) const {
    RowValues values;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) X::decode(raw[v], values[v]);
    if (params_.freqs != nullptr) rotate(params_.interleaved, angles, values);
    quantize_row<Config::kLanes>(params_, target_, token,
                                 {.head = head, .lane = lane_, .gate = gate}, values);
  }

 private:
  static constexpr int kStep = Config::kLanes * kEight;  // columns between a lane's vectors

  const IndexRowParams& params_;
  const QueryTarget& target_;
  int lane_;
};

// A thread for each of `count` tokens.
template <typename Config>
__device__ inline void find_tokens(const IndexRowParams& params, const QueryTarget& target,
                                   std::int64_t first_token, int count, TokenTarget* tokens) {
  for (int t = threadIdx.x; t < count; t += Config::kThreads) {
    const TokenPlace place =
        place_of_token(params.row_offsets, params.cache_lengths, params.batch, first_token + t);
    tokens[t] = locate(target, place, first_token + t);
  }
}

// A group of lanes takes group_rows neighbouring rows, so that most of them are one token's and share
// its angles. The loop is not unrolled: its body fills a good part of the instruction cache.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    quantize_index_rows(const __grid_constant__ IndexRowParams params,
                        const __grid_constant__ QueryTarget target, int group_rows) {
  __shared__ TokenTarget tokens[Config::kGroups * Config::kMostRows + 1];
  const auto heads = static_cast<int>(params.heads.value());
  const int block_rows = Config::kGroups * group_rows;
  const std::int64_t first = std::int64_t{blockIdx.x} * block_rows;
  const std::int64_t first_token = params.heads.quotient_of(first);
  const auto skipped = static_cast<int>(first - first_token * heads);
  const std::int64_t left = params.tokens * heads - first;
  const int count = left < block_rows ? static_cast<int>(left) : block_rows;
  const auto token_of = [&](int row) {
    return static_cast<int>(params.heads.quotient(skipped + row));
  };

  RowQuantizer<Config> quantizer(params, target);
  typename RowQuantizer<Config>::Raw next = {};
  const auto own = static_cast<int>(threadIdx.x) / Config::kLanes * group_rows;
  const int last = min(own + group_rows, count);
  RowCursor at(params, first_token, token_of(own), skipped + own - token_of(own) * heads);
  at.x += quantizer.lane() * kEight * (bits(Config::kX) / 8);
  if (own < last) quantizer.load(at.x, next);
  find_tokens<Config>(params, target, first_token, token_of(count - 1) + 1, tokens);
  __syncthreads();

  int held = -1;  // the token whose angles are there, or on their way
  RowAngles angles = {};
#pragma unroll 1
  for (int row = own; row < own + group_rows; ++row) {
    typename RowQuantizer<Config>::Raw raw;
    RowQuantizer<Config>::copy(next, raw);
    const RowCursor here = at;
    at.advance(params, heads);
    if (row + 1 < last) quantizer.load(at.x, next);
    TokenTarget place;  // rows past the end are nobody's: the shuffles stay whole
    float gate = 0.0f;
    if (row < last) {
      place = tokens[here.token];
      if (here.token != held) {
        held = here.token;
        quantizer.load_angles(place.position, angles);
      }
      if (quantizer.lane() == 0) gate = gate_of(target, place, here.head);
    }
    quantizer.store(raw, angles, place, here.head, gate);
  }
}

// Several blocks for each place that a multiprocessor has, before a group takes a second row.
template <typename Config>
void launch_queries(const IndexRowParams& params, const QueryTarget& target,
                    const IndexRowLaunch& launched) {
  const std::int64_t rows = params.tokens * params.heads.value();
  const std::int64_t wanted = std::int64_t{launched.num_sms} * Config::kMinBlocks * 2;
  const std::int64_t group_rows =
      std::clamp<std::int64_t>(rows / (Config::kGroups * wanted), 1, Config::kMostRows);
  launch(quantize_index_rows<Config>,
         {.grid = dim3(num_blocks(rows, Config::kGroups * group_rows)),
          .block = dim3(Config::kThreads)},
         launched.stream, params, target, static_cast<int>(group_rows));
}

template <DType kX>
void launch_queries_of_type(const IndexRowParams& params, const QueryTarget& target,
                            const IndexRowLaunch& launched) {
  if (params.columns == kRowColumns<2>) {
    return launch_queries<QueryRowConfig<kX, 2>>(params, target, launched);
  }
  launch_queries<QueryRowConfig<kX, 4>>(params, target, launched);
}

}  // namespace quire::cuda::hopper
