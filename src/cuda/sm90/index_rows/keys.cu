// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/any/index_rows/hadamard.cuh"
#include "cuda/any/index_rows/quantize_row.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/index_rows/key_stages.cuh"
#include "cuda/sm90/index_rows/launch.h"

namespace quire::cuda::sm90::index_rows {

// The kernel of store_index_keys for rows of 64 or 128 columns, none or half of them rotated.

// Two or four numbers that stand in shared memory.
template <int kWidth>
__device__ inline void decode_shared(const std::byte* from, DType dtype, float (&values)[kWidth]) {
  static_assert(kWidth == 2 || kWidth == 4);
  if (dtype == DType::f32) return load_shared(reinterpret_cast<const float*>(from), values);
  uint2 raw = {};
  if constexpr (kWidth == 2) {
    raw.x = *reinterpret_cast<const unsigned*>(from);
  } else {
    raw = *reinterpret_cast<const uint2*>(from);
  }
  float vec8[kVec8];
  if (dtype == DType::bf16) {
    Vec8<DType::bf16>::decode(make_uint4(raw.x, raw.y, 0, 0), vec8);
  } else {
    Vec8<DType::f16>::decode(make_uint4(raw.x, raw.y, 0, 0), vec8);
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] = vec8[i];
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
      // By every thread that read: racecheck does not follow one lane's arrival for its warp.
      shared_.ring.empty[at.stage].arrive();
    }
  }

 private:
  static constexpr int kVectors = Config::kVectors;
  static constexpr int kWidth = Config::kWidth;
  static constexpr int kRows = Config::kRows;
  static constexpr int kGroups = Config::kWorkers / Config::kLanes;

  // Neighbouring groups work on rows of different runs.
  __device__ static int row_of(int group, int r) {
    return group % Config::kRuns * Config::kRunRows + r * (kGroups / Config::kRuns) +
           group / Config::kRuns;
  }

  // All lanes of a warp take part, whether their rows are written or not.
  __device__ void store(const KeyStage<Config>& stage) const {
    const auto group = static_cast<int>(threadIdx.x) / Config::kLanes;
    const auto lane = static_cast<int>(threadIdx.x) % Config::kLanes;
    RowValues<kWidth, kVectors> rows[kRows];
    TokenTarget tokens[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = row_of(group, r);
      tokens[r] = stage.tokens[row];
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int column = (lane + v * Config::kLanes) * kWidth;
        decode_shared(stage.row(row) + column * (bits(Config::kX) / 8), Config::kX, rows[r][v]);
      }
    }
    if (Config::Steps::has_norm(params_)) {
      normalize<Config::kLanes, mean_passes(Config::kX)>(rows, shared_.norm + lane * kWidth,
                                                         params_.epsilon);
    }
    if (Config::Steps::rotates(params_)) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        rotate_row(stage.angles + row_of(group, r) * (Config::kColumns / 2 * freqs_size()), lane,
                   rows[r]);
      }
    }
    if (Config::Steps::has_hadamard(params_)) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if constexpr (Config::kLanesHaveRuns) {
          hadamard_transposing<Config::kLanes>(rows[r]);
        } else {
          hadamard_by_shuffles<Config::kLanes>(rows[r]);
        }
      }
    }
    quantize_rows<Config>(params_, target_, tokens, {.lane = lane}, rows);
  }

  __device__ int freqs_size() const {
    return Config::Steps::freqs_dtype(params_) == DType::f32 ? 4 : 2;
  }

  // Of f32.
  __device__ static void load_two(const std::byte* from, float (&a)[kWidth], float (&b)[kWidth]) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    a[0] = four.x;
    a[1] = four.y;
    b[0] = four.z;
    b[1] = four.w;
  }

  __device__ void rotate_row(const std::byte* freqs, int lane,
                             RowValues<kWidth, kVectors>& row) const {
    const bool interleaved = Config::Steps::is_interleaved(params_);
    const DType dtype = Config::Steps::freqs_dtype(params_);
    RowAngles<kWidth, kVectors> angles;
#pragma unroll
    for (int v = 0; v < kVectors / 2; ++v) {
      const int from = angle_vector<Config::kLanes>(interleaved, lane, v) * kWidth;
      if (kWidth == 2 && !interleaved) {  // two neighbours at once
        if (v % 2 == 0) load_two(freqs + from * freqs_size(), angles[v], angles[v + 1]);
      } else {
        decode_shared(freqs + from * freqs_size(), dtype, angles[v]);
      }
    }
    rotate(interleaved, angles, row);
  }

  const IndexRowParams& params_;
  const KeyTarget& target_;
  KeyShared<Config>& shared_;
};

// A thread's column of LayerNorm's weight and bias. They are asked for before any row: behind the rows of all stages
// they would come a few microseconds later, and nobody can work without them.
template <typename Config> class NormColumn {
 public:
  __device__ explicit NormColumn(const IndexRowParams& params) : params_(params) {
    static_assert(Config::kColumns <= Config::kWorkers);
    if (!is_used()) return;
    weight_ = load_bits(params.norm_weight.data, params.norm_weight.dtype, threadIdx.x);
    bias_ = load_bits(params.norm_bias.data, params.norm_bias.dtype, threadIdx.x);
  }

  __device__ void put(float (&norm)[2 * Config::kColumns]) const {
    if (!is_used()) return;
    norm[threadIdx.x] = float_of_bits(weight_, params_.norm_weight.dtype);
    norm[Config::kColumns + threadIdx.x] = float_of_bits(bias_, params_.norm_bias.dtype);
  }

 private:
  __device__ bool is_used() const {
    return Config::Steps::has_norm(params_) && threadIdx.x < Config::kColumns;
  }

  const IndexRowParams& params_;
  unsigned weight_ = 0;
  unsigned bias_ = 0;
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    store_index_rows(const __grid_constant__ IndexRowParams params,
                     const __grid_constant__ KeyTarget target) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<KeyShared<Config>*>(memory);
  const NormColumn<Config> norm(params);
  if (threadIdx.x == 0) {
    shared.init();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < Config::kWorkers) {
    norm.put(shared.norm);
    cutlass::arch::NamedBarrier::sync(Config::kWorkers, 1);
    KeyWorker<Config>(params, target, shared).run();
  } else {
    KeyLoader<Config>(params, target, shared).run();
  }
}

template <typename Config>
void launch_config(const IndexRowParams& params, const KeyTarget& target,
                   const IndexRowLaunch& launched) {
  const unsigned needed = num_blocks(params.tokens, Config::kStageRows);
  const auto places = static_cast<unsigned>(launched.num_sms * Config::kMinBlocks);
  launch(store_index_rows<Config>,
         {.grid = dim3(std::min(needed, places)),
          .block = dim3(Config::kThreads),
          .shared_bytes = sizeof(KeyShared<Config>)},
         launched.stream, params, target);
}

// The keys of the models there are.
inline bool are_usual_keys(const IndexRowParams& params, const KeyTarget& target) {
  return takes_runs(target) && params.x_dtype == DType::bf16 && params.columns == 128 &&
         params.freqs != nullptr && params.freqs_dtype == DType::f32 &&
         params.norm_weight.data != nullptr && params.rounding == ScaleRounding::power_of_two;
}

void launch_keys(const IndexRowParams& params, const KeyTarget& target,
                 const IndexRowLaunch& launched) {
  if (are_usual_keys(params, target)) {
    return with_steps(params, [&]<RowSteps kSteps>() {
      launch_config<KeyRowConfig<DType::bf16, 128, kSteps>>(params, target, launched);
    });
  }
  with_vec8_type(params.x_dtype, [&]<DType kX>() {
    if (params.columns == 64) {
      return launch_config<KeyRowConfig<kX, 64>>(params, target, launched);
    }
    launch_config<KeyRowConfig<kX, 128>>(params, target, launched);
  });
}

}  // namespace quire::cuda::sm90::index_rows
