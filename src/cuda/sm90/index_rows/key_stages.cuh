// SPDX-License-Identifier: Apache-2.0
// Keys: every row is a token of its own, with angles of its own. A warp finds the places of the next
// rows and has TMA bring them and their angles to shared memory; four warps work on those
// that are there. What the first warp does must take less time than the work: pages are asked for a stage ahead.
#pragma once

#include "cuda/any/index_rows/quantize_row.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/rows/token_place.cuh"

namespace quire::cuda::sm90::index_rows {

using namespace any::index_rows;  // the same op, with the same parameters and steps of a row

template <DType kXType, int kRowColumns, RowSteps kSteps = RowSteps::any> struct KeyRowConfig {
  using Steps = KnownKeySteps<kSteps>;
  static constexpr DType kX = kXType;
  static constexpr int kColumns = kRowColumns;
  // With Hadamard as many vectors as lanes: what a lane has in the end is one run of columns.
  static constexpr bool kLanesHaveRuns = Steps::kHasHadamard;
  static constexpr int kVectors = kLanesHaveRuns ? 8 : kRowVectors;  // of a lane
  static constexpr int kWidth = kLanesHaveRuns ? 2 : 4;              // of those
  static constexpr int kLanes = kColumns / kVectors / kWidth;        // of a row
  static constexpr int kRows = 2;                                    // of a lane, at once
  static constexpr int kWorkers = 128;
  static constexpr int kLoaders = 2;  // warps: one alone takes longer than the work
  static constexpr int kThreads = kWorkers + 32 * kLoaders;
  static constexpr int kStages = 3;
  static constexpr int kMinBlocks = kX == DType::f32 ? 3 : 4;  // of a multiprocessor
  static constexpr int kStageRows = kWorkers / kLanes * kRows;
  static constexpr int kXBytes = kColumns * (bits(kX) / 8);
  static constexpr int kAngleBytes = kColumns / 2 * 4;  // at most
  // Rows that are read at a time stand in runs of their own, each a vector of a row further on in the banks.
  static constexpr int kStepBytes = kLanes * kWidth * (bits(kX) / 8);
  static constexpr int kRuns = kStepBytes >= 128 ? 1 : 128 / kStepBytes;
  static constexpr int kRunRows = kStageRows / kRuns;
};

template <typename Config> struct KeyStage {
  alignas(128) std::byte x[Config::kRuns][Config::kRunRows * Config::kXBytes + Config::kStepBytes];
  std::byte angles[Config::kStageRows * Config::kAngleBytes];  // rows follow each other
  TokenTarget tokens[Config::kStageRows];

  __device__ std::byte* row(int r) {
    return x[r / Config::kRunRows] + r % Config::kRunRows * Config::kXBytes;
  }
  __device__ const std::byte* row(int r) const { return const_cast<KeyStage*>(this)->row(r); }
};

template <typename Config> struct KeyShared {
  KeyStage<Config> stages[Config::kStages];
  alignas(16) float norm[2 * Config::kColumns];  // weight and bias
  RingBarriers<Config::kStages> ring;

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() { ring.init(32, Config::kWorkers); }
};

// The rows of a CTA: stages of neighbours, dealt to the CTAs of a grid.
template <typename Config> struct KeyStages {
  std::int64_t tokens;

  __device__ std::int64_t count() const {
    return (tokens + Config::kStageRows - 1) / Config::kStageRows;
  }
};

// One warp: a lane to a row. It takes every kLoaders-th stage of its block.
template <typename Config> class KeyLoader {
 public:
  __device__ KeyLoader(const IndexRowParams& params, const KeyTarget& target,
                       KeyShared<Config>& shared)
      : params_(params),
        target_(target),
        shared_(shared),
        finder_(params.row_offsets, params.cache_lengths, params.batch) {}

  __device__ void run() {
    const std::int64_t count = KeyStages<Config>{params_.tokens}.count();
    const int first = static_cast<int>(threadIdx.x - Config::kWorkers) / 32;
    if (first == 0) start_x();
    RingPosition<Config::kStages> at;
    for (int i = 0; i < first; ++i) at.advance();
    std::int64_t stage = blockIdx.x + std::int64_t{gridDim.x} * first;
    look_up(stage);
    for (int i = first; stage < count; i += Config::kLoaders) {
      shared_.ring.wait_empty(at);
      __syncwarp();
      give(stage, at.stage, i == 0);
      stage += std::int64_t{gridDim.x} * Config::kLoaders;
      look_up(stage);  // waited for with the next stage
#pragma unroll
      for (int j = 0; j < Config::kLoaders; ++j) at.advance();
    }
  }

 private:
  static constexpr int kOwnRows = Config::kStageRows / 32;  // of a lane

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % 32);
  }
  __device__ static std::int64_t token_of(std::int64_t stage, int i) {
    return stage * Config::kStageRows + lane() + 32 * i;
  }

  // Whether a stage's rows of x are one run, whatever their places.
  __device__ bool is_one_run(std::int64_t stage) const {
    return (stage + 1) * Config::kStageRows <= params_.tokens &&
           params_.token_bytes == Config::kXBytes;
  }
  __device__ void load_run(std::int64_t stage, int place) {
    shared_.ring.full[place].expect_transaction(Config::kStageRows * Config::kXBytes);
#pragma unroll
    for (int i = 0; i < Config::kRuns; ++i) {
      load_x(stage * Config::kStageRows + i * Config::kRunRows, shared_.stages[place].x[i],
             Config::kRunRows, shared_.ring.full[place]);
    }
  }

  // The rows of the first stage, before anything is known of their places; those of all stages would be in their own
  // way.
  __device__ void start_x() {
    if (lane() == 0 && is_one_run(blockIdx.x)) load_run(blockIdx.x, 0);
  }

  __device__ void look_up(std::int64_t stage) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const std::int64_t token = token_of(stage, i);
      const TokenPlace place = finder_.find(token);
      pages_[i] = any::index_rows::look_up(target_, token < params_.tokens ? place : TokenPlace{});
    }
  }

  // What lies in one run is brought whole, and before the pages are known; else row by row, but for rows without a
  // place.
  __device__ void give(std::int64_t stage, int place, bool has_x) {
    KeyStage<Config>& there = shared_.stages[place];
    FullBarrier& full = shared_.ring.full[place];
    const int angle_bytes =
        params_.freqs == nullptr ? 0 : Config::kColumns / 2 * params_.freqs_size;
    const bool one_x = is_one_run(stage);
    const bool one_freqs = angle_bytes == 0 || angles_are_one_run();
    if (lane() == 0 && one_x && !has_x) load_run(stage, place);
    if (lane() == 0 && one_freqs && angle_bytes > 0) {
      full.expect_transaction(static_cast<unsigned>(Config::kStageRows * angle_bytes));
      load_freqs(pages_[0].position, there.angles, Config::kStageRows, full);
    }
    int bytes = 0;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const TokenTarget found = locate(target_, pages_[i]);
      const int row = lane() + 32 * i;
      there.tokens[row] = found;
      if (found.position < 0) continue;
      if (!one_x) bytes += load_x(token_of(stage, i), there.row(row), 1, full);
      if (!one_freqs) {
        bytes += load_freqs(min(found.position, params_.max_pos - 1),
                            there.angles + row * angle_bytes, 1, full);
      }
    }
    full.arrive_and_expect_tx(static_cast<unsigned>(bytes));
  }

  // Whether the angles of all rows follow each other.
  __device__ bool angles_are_one_run() const {
    const std::int64_t first = __shfl_sync(0xffffffffu, pages_[0].position, 0);
    bool are = first >= 0 && first + Config::kStageRows <= params_.max_pos &&
               params_.freqs_stride == Config::kColumns / 2;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) are = are && pages_[i].position == first + lane() + 32 * i;
    return __all_sync(0xffffffffu, are);
  }

  // How many bytes are on their way.
  __device__ int load_x(std::int64_t token, void* shared, int rows, FullBarrier& full) const {
    const int bytes = rows * Config::kXBytes;
    load_bytes({.from = params_.x + token * params_.token_bytes,
                .shared = shared,
                .bytes = bytes,
                .full = &full,
                .hint = L2Hint::EVICT_NORMAL});
    return bytes;
  }
  __device__ int load_freqs(std::int64_t position, void* shared, int rows,
                            FullBarrier& full) const {
    const int bytes = rows * Config::kColumns / 2 * params_.freqs_size;
    load_bytes({.from = params_.freqs + position * params_.freqs_stride * params_.freqs_size,
                .shared = shared,
                .bytes = bytes,
                .full = &full,
                .hint = L2Hint::EVICT_LAST});
    return bytes;
  }

  const IndexRowParams& params_;
  const KeyTarget& target_;
  KeyShared<Config>& shared_;
  TokenFinder finder_;
  KeyPages pages_[kOwnRows];  // of the next stage
};

}  // namespace quire::cuda::sm90::index_rows
