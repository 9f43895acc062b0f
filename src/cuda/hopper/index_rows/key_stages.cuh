// SPDX-License-Identifier: Apache-2.0
// Keys: every row is a token of its own, with angles of its own. A warp finds the places of the next
// rows and has the copy engine bring them and their angles to shared memory; four warps work on those
// that are there. Loads by the lanes that hold a row took a line's tag for every 64 bytes of it, and
// twice as many for angles: they bound the kernel, not memory.
#pragma once

#include "cuda/hopper/index_rows/known_steps.cuh"
#include "cuda/hopper/index_rows/row_steps.cuh"
#include "cuda/hopper/index_rows/target.cuh"
#include "cuda/hopper/tile/bulk_copy.cuh"
#include "cuda/hopper/tile/ring.cuh"

namespace quire::cuda::hopper {

template <DType kXType, int kRowLanes> struct KeyRowConfig {
  using Steps = KnownSteps<RowSteps::any>;
  // The tensor cores' way costs 4 % here: beside LayerNorm the shuffles are not what binds.
  static constexpr HadamardWay kHadamard = HadamardWay::shuffles;
  static constexpr DType kX = kXType;
  static constexpr int kLanes = kRowLanes;  // of a row
  static constexpr int kColumns = kRowColumns<kLanes>;
  static constexpr int kWorkers = 128;
  static constexpr int kThreads = kWorkers + 32;
  static constexpr int kStages = 3;
  static constexpr int kMinBlocks = kX == DType::f32 ? 3 : 4;  // of a multiprocessor
  static constexpr int kStageRows = kWorkers / kLanes;
  static constexpr int kXBytes = kColumns * (bits(kX) / 8);
  static constexpr int kAngleBytes = kColumns / 2 * 4;  // at most
};

template <typename Config> struct KeyStage {
  alignas(128) std::byte x[Config::kStageRows][Config::kXBytes];
  std::byte angles[Config::kStageRows * Config::kAngleBytes];  // rows follow each other
  TokenTarget tokens[Config::kStageRows];
};

template <typename Config> struct KeyShared {
  KeyStage<Config> stages[Config::kStages];
  alignas(16) float norm[2 * Config::kColumns];  // weight and bias
  RingBarriers<Config::kStages> ring;

  // By one thread, before a fence_barrier_init and a barrier.
  __device__ void init() { ring.init(32, Config::kWorkers / 32); }
};

// The rows of a thread block: stages of neighbours, a grid's blocks by turns.
template <typename Config> struct KeyStages {
  std::int64_t tokens;

  __device__ std::int64_t count() const {
    return (tokens + Config::kStageRows - 1) / Config::kStageRows;
  }
};

// One warp: a lane to a row.
template <typename Config> class KeyLoader {
 public:
  __device__ KeyLoader(const IndexRowParams& params, const KeyTarget& target,
                       KeyShared<Config>& shared)
      : params_(params), target_(target), shared_(shared) {}

  __device__ void run() {
    const std::int64_t count = KeyStages<Config>{params_.tokens}.count();
    std::int64_t stage = blockIdx.x;
    if (stage < count) find(stage);
    RingPosition<Config::kStages> at;
    for (; stage < count; at.advance()) {
      shared_.ring.wait_empty(at);
      __syncwarp();
      give(stage, at.stage);
      stage += gridDim.x;
      if (stage < count) find(stage);  // its loads are waited for with the next stage
    }
  }

 private:
  static constexpr int kOwnRows = Config::kStageRows / 32;  // of a lane

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static std::int64_t token_of(std::int64_t stage, int i) {
    return stage * Config::kStageRows + lane() + 32 * i;
  }

  __device__ void find(std::int64_t stage) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const std::int64_t token = token_of(stage, i);
      found_[i] = {};
      if (token >= params_.tokens) continue;
      const TokenPlace place =
          place_of_token(params_.row_offsets, params_.cache_lengths, params_.batch, token);
      found_[i] = locate(target_, place, token);
    }
  }

  // Rows without a place are not brought one by one; neighbours that lie in one run are.
  __device__ void give(std::int64_t stage, int place) {
    KeyStage<Config>& there = shared_.stages[place];
    FullBarrier& full = shared_.ring.full[place];
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) there.tokens[lane() + 32 * i] = found_[i];
    const bool is_whole = (stage + 1) * Config::kStageRows <= params_.tokens;
    const bool one_x = is_whole && params_.token_bytes == Config::kXBytes;
    const bool one_freqs = is_whole && are_neighbours();
    const int angle_bytes =
        params_.freqs == nullptr ? 0 : Config::kColumns / 2 * params_.freqs_size;
    const int own_x = one_x ? (lane() == 0 ? Config::kStageRows : 0) : num_found();
    const int own_freqs = one_freqs ? (lane() == 0 ? Config::kStageRows : 0) : num_found();
    full.arrive_and_expect_tx(
        static_cast<unsigned>(own_x * Config::kXBytes + own_freqs * angle_bytes));
    if (one_x) {
      if (lane() == 0) load_x(stage * Config::kStageRows, there.x[0], Config::kStageRows, full);
    } else {
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        if (found_[i].position >= 0) load_x(token_of(stage, i), there.x[lane() + 32 * i], 1, full);
      }
    }
    if (angle_bytes == 0) return;
    if (one_freqs) {
      if (lane() == 0) load_freqs(found_[0].position, there.angles, Config::kStageRows, full);
      return;
    }
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      if (found_[i].position < 0) continue;
      load_freqs(min(found_[i].position, params_.max_pos - 1),
                 there.angles + (lane() + 32 * i) * angle_bytes, 1, full);
    }
  }

  __device__ int num_found() const {
    int count = 0;
#pragma unroll
    for (const TokenTarget& found : found_) count += found.position >= 0 ? 1 : 0;
    return count;
  }

  // Whether the angles of all rows follow each other.
  __device__ bool are_neighbours() const {
    const std::int64_t first = __shfl_sync(0xffffffffu, found_[0].position, 0);
    bool are = first >= 0 && first + Config::kStageRows <= params_.max_pos &&
               params_.freqs_stride == Config::kColumns / 2;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) are = are && found_[i].position == first + lane() + 32 * i;
    return __all_sync(0xffffffffu, are);
  }

  __device__ void load_x(std::int64_t token, void* shared, int rows, FullBarrier& full) const {
    load_bytes({.from = params_.x + token * params_.token_bytes,
                .shared = shared,
                .bytes = rows * Config::kXBytes,
                .full = &full,
                .hint = L2Hint::EVICT_FIRST});
  }
  __device__ void load_freqs(std::int64_t position, void* shared, int rows,
                             FullBarrier& full) const {
    load_bytes({.from = params_.freqs + position * params_.freqs_stride * params_.freqs_size,
                .shared = shared,
                .bytes = rows * Config::kColumns / 2 * params_.freqs_size,
                .full = &full,
                .hint = L2Hint::EVICT_LAST});
  }

  const IndexRowParams& params_;
  const KeyTarget& target_;
  KeyShared<Config>& shared_;
  TokenTarget found_[kOwnRows];  // of the next stage
};

}  // namespace quire::cuda::hopper
