// SPDX-License-Identifier: Apache-2.0
// The kernel of store_index_keys for rows of 64 or 128 columns, none or half of them turned.
#pragma once

#include <algorithm>

#include "cuda/hopper/index_rows/key_stages.cuh"
#include "cuda/hopper/index_rows/layer_norm.cuh"
#include "cuda/hopper/index_rows/quantize_row.cuh"
#include "cuda/rows/prefetch.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

// Four numbers that stand in shared memory.
__device__ inline void decode_shared(const std::byte* from, DType dtype, float (&values)[4]) {
  if (dtype == DType::f32) return load_shared(reinterpret_cast<const float*>(from), values);
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  float eight[kEight];
  if (dtype == DType::bf16) {
    Eight<DType::bf16>::decode(make_uint4(raw.x, raw.y, 0, 0), eight);
  } else {
    Eight<DType::f16>::decode(make_uint4(raw.x, raw.y, 0, 0), eight);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = eight[i];
}

template <typename Config> class KeyWorker {
 public:
  __device__ KeyWorker(const IndexRowParams& params, const KeyTarget& target,
                       KeyShared<Config>& shared)
      : params_(params), target_(target), shared_(shared) {}

  __device__ void run() {
    const std::int64_t count = KeyStages<Config>{params_.tokens}.count();
    RingPosition<Config::kStages> at;
#pragma unroll 1
    for (std::int64_t stage = blockIdx.x; stage < count; stage += gridDim.x, at.advance()) {
      shared_.ring.wait_full(at);
      __syncwarp();
      store(shared_.stages[at.stage]);
      __syncwarp();
      if (threadIdx.x % 32 == 0) shared_.ring.empty[at.stage].arrive();
    }
  }

 private:
  static constexpr int kWidth = Config::kWidth;
  static constexpr int kRows = Config::kRows;
  static constexpr int kGroups = Config::kWorkers / Config::kLanes;

  // All lanes of a warp take part, whether their rows are written or not.
  __device__ void store(const KeyStage<Config>& stage) const {
    const auto group = static_cast<int>(threadIdx.x) / Config::kLanes;
    const auto lane = static_cast<int>(threadIdx.x) % Config::kLanes;
    RowValues<kWidth> rows[kRows];
    TokenTarget tokens[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = r * kGroups + group;
      tokens[r] = stage.tokens[row];
#pragma unroll
      for (int v = 0; v < kRowVectors; ++v) {
        const int column = (lane + v * Config::kLanes) * kWidth;
        decode_shared(stage.x[row] + column * (bits(Config::kX) / 8), Config::kX, rows[r][v]);
      }
    }
    if (Config::Steps::has_norm(params_)) {
      normalize<Config::kLanes>(rows, shared_.norm + lane * kWidth, params_.epsilon);
    }
    if (Config::Steps::turns(params_)) {
      const AngleVectors own =
          angle_vectors<Config::kLanes>(Config::Steps::is_interleaved(params_), lane);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        turn(stage.angles + (r * kGroups + group) * (Config::kColumns / 2 * freqs_size()), own,
             rows[r]);
      }
    }
    quantize_rows<Config>(params_, target_, tokens, {.lane = lane}, rows);
  }

  __device__ int freqs_size() const {
    return Config::Steps::freqs_dtype(params_) == DType::f32 ? 4 : 2;
  }

  __device__ void turn(const std::byte* freqs, const AngleVectors& own,
                       RowValues<kWidth>& row) const {
    RowAngles<kWidth> angles;
#pragma unroll
    for (int v = 0; v < kTurnedVectors; ++v) {
      decode_shared(freqs + own.at(v) * kWidth * freqs_size(), Config::Steps::freqs_dtype(params_),
                    angles[v]);
    }
    rotate(Config::Steps::is_interleaved(params_), angles, row);
  }

  const IndexRowParams& params_;
  const KeyTarget& target_;
  KeyShared<Config>& shared_;
};

// LayerNorm's weight and bias as f32.
template <typename Config>
__device__ inline void load_norm(const IndexRowParams& params,
                                 float (&norm)[2 * Config::kColumns]) {
  if (params.norm_weight.data == nullptr) return;
  for (int i = threadIdx.x; i < Config::kColumns; i += Config::kWorkers) {
    // Beside the weight, not behind it.
    cuda::prefetch_line(params.norm_bias.data + i * (bits(params.norm_bias.dtype) / 8));
    norm[i] = load_float(params.norm_weight.data, params.norm_weight.dtype, i);
    norm[Config::kColumns + i] = load_float(params.norm_bias.data, params.norm_bias.dtype, i);
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    store_index_rows(const __grid_constant__ IndexRowParams params,
                     const __grid_constant__ KeyTarget target) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<KeyShared<Config>*>(memory);
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < Config::kWorkers) {
    load_norm<Config>(params, shared.norm);
    cutlass::arch::NamedBarrier::sync(Config::kWorkers, 1);
    KeyWorker<Config>(params, target, shared).run();
  } else {
    KeyLoader<Config>(params, target, shared).run();
  }
}

template <typename Config>
void launch_keys(const IndexRowParams& params, const KeyTarget& target,
                 const IndexRowLaunch& launched) {
  const unsigned needed = num_blocks(params.tokens, Config::kStageRows);
  const auto places = static_cast<unsigned>(launched.num_sms * Config::kMinBlocks);
  launch(store_index_rows<Config>,
         {.grid = dim3(std::min(needed, places)),
          .block = dim3(Config::kThreads),
          .shared_bytes = sizeof(KeyShared<Config>)},
         launched.stream, params, target);
}

template <DType kX>
void launch_keys_of_type(const IndexRowParams& params, const KeyTarget& target,
                         const IndexRowLaunch& launched) {
  if (params.columns == 64) {
    return launch_keys<KeyRowConfig<kX, 64>>(params, target, launched);
  }
  launch_keys<KeyRowConfig<kX, 128>>(params, target, launched);
}

// The keys of the models there are.
inline void launch_usual_keys(const IndexRowParams& params, const KeyTarget& target,
                              const IndexRowLaunch& launched) {
  for_steps_of(params, [&](auto steps) {
    launch_keys<KeyRowConfig<DType::bf16, 128, decltype(steps)::kValue>>(params, target, launched);
  });
}

inline bool are_usual_keys(const IndexRowParams& params) {
  return params.x_dtype == DType::bf16 && params.columns == 128 && params.freqs != nullptr &&
         params.freqs_dtype == DType::f32 && params.norm_weight.data != nullptr &&
         params.rounding == ScaleRounding::power_of_two;
}

}  // namespace quire::cuda::hopper
