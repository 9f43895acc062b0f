// SPDX-License-Identifier: Apache-2.0
// The kernel of store_index_keys for rows of 64 or 128 columns, none or half of them turned.
#pragma once

#include <algorithm>

#include "cuda/hopper/index_rows/key_stages.cuh"
#include "cuda/hopper/index_rows/quantize_row.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

// Eight numbers that stand in shared memory.
__device__ inline void decode_shared(const std::byte* from, DType dtype, float (&values)[kEight]) {
  const auto* vectors = reinterpret_cast<const uint4*>(from);
  if (dtype == DType::f32) {
    load_shared(reinterpret_cast<const float*>(from), values);
  } else if (dtype == DType::bf16) {
    Eight<DType::bf16>::decode(*vectors, values);
  } else {
    Eight<DType::f16>::decode(*vectors, values);
  }
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
  static constexpr int kStep = Config::kLanes * kEight;  // columns between a lane's vectors

  // All lanes of a warp take part, whether their row is written or not.
  __device__ void store(const KeyStage<Config>& stage) const {
    const auto row = static_cast<int>(threadIdx.x) / Config::kLanes;
    const auto lane = static_cast<int>(threadIdx.x) % Config::kLanes;
    RowValues values;
#pragma unroll
    for (int v = 0; v < kRowVectors; ++v) {
      const std::byte* from = stage.x[row] + (lane * kEight + v * kStep) * (bits(Config::kX) / 8);
      decode_shared(from, Config::kX, values[v]);
    }
    if (params_.norm_weight.data != nullptr) {
      normalize<Config::kLanes>(values, shared_.norm + lane * kEight, params_.epsilon);
    }
    if (params_.freqs != nullptr) {
      RowAngles angles;
      const AngleVectors own = angle_vectors<Config::kLanes>(params_.interleaved, lane);
#pragma unroll
      for (int v = 0; v < kTurnedVectors; ++v) {
        const int vector = row * (Config::kColumns / 2 / kEight) + own.at(v);
        decode_shared(stage.angles + vector * kEight * params_.freqs_size, params_.freqs_dtype,
                      angles[v]);
      }
      rotate(params_.interleaved, angles, values);
    }
    quantize_row<Config>(params_, target_, stage.tokens[row], {.lane = lane}, values);
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
  for (int i = threadIdx.x; i < Config::kColumns; i += Config::kThreads) {
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
  load_norm<Config>(params, shared.norm);
  __syncthreads();
  if (threadIdx.x < Config::kWorkers) {
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
  if (params.columns == kRowColumns<2>) {
    return launch_keys<KeyRowConfig<kX, 2>>(params, target, launched);
  }
  launch_keys<KeyRowConfig<kX, 4>>(params, target, launched);
}

}  // namespace quire::cuda::hopper
