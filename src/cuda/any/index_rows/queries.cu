// SPDX-License-Identifier: Apache-2.0
// The kernel of quantize_index_queries for rows of 64 or 128 columns, none or half of them rotated: 2 or 4
// lanes hold a row in registers, every byte is read and written once, in vectors of 16 (8 for codes).
// There are no more CTAs than places for them: a CTA finds the places of all of its tokens, and brings their
// angles to shared memory, once, while its first rows are on their way. A group of lanes has its next row on the
// way while it works on one.
#include <algorithm>

#include "cuda/any/index_rows/hadamard.cuh"
#include "cuda/any/index_rows/quantize_row.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::index_rows {
namespace {

template <DType kXType, int kRowLanes, RowSteps kSteps = RowSteps::any> struct QueryRowConfig {
  using Steps = KnownSteps<kSteps>;
  static constexpr bool kLanesHaveRuns = false;
  static constexpr DType kX = kXType;
  static constexpr int kLanes = kRowLanes;
  static constexpr int kThreads = 128;
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kMostTokens = kGroups + 16;             // of a CTA
  static constexpr int kMinBlocks = kX == DType::f32 ? 4 : 5;  // of a multiprocessor
};

// What a CTA knows of its tokens, found once for all their heads. Angles stand by the quad of columns, then by the lane:
// neighbours read neighbours.
template <typename Config> struct QueryTokens {
  static constexpr int kQuads = kRotatedVectors * 2;  // of a lane
  static_assert(Config::kMostTokens <= Config::kThreads);

  TokenTarget targets[Config::kMostTokens];
  float4 angles[Config::kMostTokens][kQuads][Config::kLanes];

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
    if (!Config::Steps::rotates(params)) return;
    for (int i = threadIdx.x; i < count * Config::kLanes; i += Config::kThreads) {
      const int token = i / Config::kLanes;
      const int lane = i % Config::kLanes;
      if (targets[token].position < 0) continue;
      RowAngles<kVec8> own;
      index_rows::load_angles<Config::kLanes>(params, lane, targets[token].position, own);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const float* four = &own[q / 2][q % 2 * 4];
        angles[token][q][lane] = make_float4(four[0], four[1], four[2], four[3]);
      }
    }
  }

  __device__ void angles_of(int token, int lane, RowAngles<kVec8>& own) const {
#pragma unroll
    for (int v = 0; v < kRotatedVectors; ++v) {
      Vec8<DType::f32>::decode({angles[token][2 * v][lane], angles[token][2 * v + 1][lane]},
                               own[v]);
    }
  }
};

// The rows of a block: every group of lanes takes every kGroups-th of them.
struct IndexQueryRows {
  std::int64_t first;
  std::int64_t first_token;
  int skipped;  // rows of the first token that are other blocks'
  int count;
};

template <typename Config> class RowQuantizer {
 public:
  __device__ RowQuantizer(const IndexRowParams& params, const QueryTarget& target,
                          const QueryTokens<Config>& tokens, const IndexQueryRows& rows)
      : params_(params),
        target_(target),
        tokens_(tokens),
        first_token_(rows.first_token),
        lane_(threadIdx.x % Config::kLanes),
        x_(params.x + rows.first_token * params.token_bytes +
           lane_ * kVec8 * (bits(Config::kX) / 8)) {
    // Kept in registers: worked out again at every use, they are a tenth of a row's instructions.
    asm volatile("" : "+r"(lane_), "+l"(x_));
    const int row = static_cast<int>(threadIdx.x) / Config::kLanes;
    token_ = static_cast<int>(params.heads.quotient(rows.skipped + row));
    head_ = rows.skipped + row - token_ * heads();
    left_ = rows.count - row;
    load();
  }

  // All lanes of a warp take part in every row, whether theirs is written or not.
  __device__ void run(int num_rows) {
    RowAngles<kVec8> angles = {};
    int held = -1;  // the token whose angles those are
#pragma unroll 1
    for (int i = 0; i < num_rows; ++i) {
      RowValues<kVec8> values[1];
      decode(values[0]);
      TokenTarget place;  // rows past the end are nobody's: the shuffles stay whole
      const int head = head_;
      const unsigned gate = next_gate_;
      if (left_ > 0) {
        place = tokens_.targets[token_];
        if (token_ != held && Config::Steps::rotates(params_)) {
          tokens_.angles_of(token_, lane_, angles);
        }
        held = token_;
      }
      advance();
      load();
      if (Config::Steps::rotates(params_)) {
        rotate(Config::Steps::is_interleaved(params_), angles, values[0]);
      }
      if (Config::Steps::has_hadamard(params_)) add(values[0]);
      quantize_rows<Config>(params_, target_, {place},
                            {.head = head, .lane = lane_, .gate_bits = gate}, values);
    }
  }

 private:
  using X = Vec8<Config::kX>;
  static constexpr int kStep = Config::kLanes * kVec8;  // columns between a lane's vectors

  // Of numbers that are not rotated, Hadamard's first levels by the tensor cores need no decoding.
  static constexpr bool kStartsRaw = Config::Steps::kHasHadamard && bits(Config::kX) == 16 &&
                                     Config::kLanes == HadamardProduct::kLanes;

  __device__ int heads() const {
    return static_cast<int>(params_.heads.value());
  }

  __device__ void decode(RowValues<kVec8>& values) const {
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      if constexpr (kStartsRaw) {
        if (v >= kRotatedVectors) {
          raw_product_.apply(next_[v], values[v]);
          continue;
        }
      }
      X::decode(next_[v], values[v]);
    }
  }

  __device__ void add(RowValues<kVec8>& values) const {
    if constexpr (Config::kLanes == HadamardProduct::kLanes) {
      hadamard_by_product<kStartsRaw ? kRowVectors / 2 : 0>(product_, values);
    } else {
      hadamard_by_shuffles<Config::kLanes>(values);
    }
  }

  __device__ void advance() {
    left_ -= Config::kGroups;
    head_ += Config::kGroups;
    while (head_ >= heads()) {
      head_ -= heads();
      ++token_;
    }
  }

  __device__ void load() {
    if (left_ <= 0) return;
    const std::byte* x = x_ + token_ * params_.token_bytes + head_ * params_.head_bytes;
    __builtin_assume(__isGlobal(x));
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      next_[v] = X::load(x + v * kStep * (bits(Config::kX) / 8));
    }
    if (lane_ == 0) next_gate_ = gate_bits(target_, first_token_ + token_, head_);
  }

  const IndexRowParams& params_;
  const QueryTarget& target_;
  const QueryTokens<Config>& tokens_;
  std::int64_t first_token_;  // of the block
  int lane_;
  const std::byte* x_;  // the lane's first column of the block's first token
  int token_;           // of the block
  int head_;
  int left_;  // rows of the block from the group's next on
  typename X::Raw next_[kRowVectors] = {};
  unsigned next_gate_ = 0;  // lane 0's
  HadamardProduct product_;
  RawHadamardProduct<Config::kX == DType::f16 ? DType::f16 : DType::bf16> raw_product_;
};

// The loop is not unrolled: its body fills a good part of the instruction cache.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    quantize_index_rows(const __grid_constant__ IndexRowParams params,
                        const __grid_constant__ QueryTarget target, int group_rows) {
  __shared__ QueryTokens<Config> tokens;
  const auto heads = static_cast<int>(params.heads.value());
  const int block_rows = Config::kGroups * group_rows;
  IndexQueryRows rows{.first = std::int64_t{blockIdx.x} * block_rows};
  rows.first_token = params.heads.quotient_of(rows.first);
  rows.skipped = static_cast<int>(rows.first - rows.first_token * heads);
  const std::int64_t left = params.tokens * heads - rows.first;
  rows.count = left < block_rows ? static_cast<int>(left) : block_rows;
  const int num_tokens = static_cast<int>(params.heads.quotient(rows.skipped + rows.count - 1)) + 1;

  RowQuantizer<Config> quantizer(params, target, tokens, rows);
  tokens.find(params, target, rows.first_token, num_tokens);
  __syncthreads();
  tokens.load_angles(params, num_tokens);
  __syncthreads();
  quantizer.run(group_rows);
}

// As many blocks as there are places, unless they had more tokens than fit.
template <typename Config>
void launch_queries(const IndexRowParams& params, const QueryTarget& target,
                    const IndexRowLaunch& launched) {
  const std::int64_t heads = params.heads.value();
  const std::int64_t rows = params.tokens * heads;
  const std::int64_t places = std::int64_t{launched.num_sms} * Config::kMinBlocks;
  // Rows from any head on touch one token more than they fill.
  const std::int64_t most = (Config::kMostTokens - 2) * heads / Config::kGroups;
  const std::int64_t group_rows = std::clamp<std::int64_t>(
      num_blocks(rows, places * Config::kGroups), 1, std::max<std::int64_t>(most, 1));
  launch(quantize_index_rows<Config>,
         {.grid = dim3(num_blocks(rows, Config::kGroups * group_rows)),
          .block = dim3(Config::kThreads)},
         launched.stream, params, target, static_cast<int>(group_rows));
}

}  // namespace

void launch_vectors(const IndexRowParams& params, const QueryTarget& target,
                    const IndexRowLaunch& launched) {
  // The rows of the models there are.
  if (params.x_dtype == DType::bf16 && params.columns == 128 && params.freqs != nullptr) {
    return with_steps(params, [&]<RowSteps kSteps>() {
      launch_queries<QueryRowConfig<DType::bf16, 4, kSteps>>(params, target, launched);
    });
  }
  with_vec8_type(params.x_dtype, [&]<DType kX>() {
    if (params.columns == 64) {
      return launch_queries<QueryRowConfig<kX, 2>>(params, target, launched);
    }
    launch_queries<QueryRowConfig<kX, 4>>(params, target, launched);
  });
}

}  // namespace quire::cuda::any::index_rows
