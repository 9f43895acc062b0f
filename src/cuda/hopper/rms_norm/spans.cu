// SPDX-License-Identifier: Apache-2.0
// A span stays in the registers of its lanes between the sum of squares and the write. How many
// tokens there are is known on the device alone, so the grid is as large as the card and walks.
#include "cuda/hopper/rms_norm/params.h"
#include "cuda/rows/eight.cuh"
#include "cuda/rows/token_place.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

namespace {

constexpr int kThreads = 256;

template <DType kXType, DType kGammaType, int kSpanLanes, int kLaneSlots> struct SpanConfig {
  static constexpr DType kX = kXType;
  static constexpr DType kGamma = kGammaType;
  static constexpr int kLanes = kSpanLanes;
  static constexpr int kSlots = kLaneSlots;
  static constexpr int kSpans = kSlots >= 3 ? 1 : 4 / kSlots;  // of a group of lanes, in flight
  static constexpr int kBlockSpans = kThreads / kLanes * kSpans;
};

template <typename Config> class SpanNorm {
 public:
  using X = Eight<Config::kX>;
  using Gamma = Eight<Config::kGamma>;

  __device__ SpanNorm(const RmsNormParams& params, int lane)
      : params_(params),
        lane_(lane),
        inverse_columns_(1.0f / static_cast<float>(params.columns)),
        epsilon_(static_cast<float>(params.epsilon)) {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (is_used(s)) Gamma::decode(Gamma::load(params.gamma + column(s) * kGammaBytes), gamma_[s]);
#pragma unroll
      for (int i = 0; i < kEight; ++i) gamma_[s][i] += static_cast<float>(params.weight_offset);
    }
  }

  __device__ void load(const std::byte* row, typename X::Raw (&raw)[Config::kSlots]) const {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (row != nullptr && is_used(s)) raw[s] = X::load(row + column(s) * kXBytes);
    }
  }

  // All lanes of the warp take part; a span without a page is dropped.
  __device__ void store(const typename X::Raw (&raw)[Config::kSlots], std::byte* row) const {
    float x[Config::kSlots][kEight];
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      X::decode(raw[s], x[s]);
#pragma unroll
      for (int i = 0; i < kEight; ++i) sum = is_used(s) ? fmaf(x[s][i], x[s][i], sum) : sum;
    }
#pragma unroll
    for (int step = Config::kLanes / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    const float factor = __frsqrt_rn(fmaf(sum, inverse_columns_, epsilon_));
    if (row == nullptr) return;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (!is_used(s)) continue;
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        const float scaled = x[s][i] * factor;
        const float y = params_.multiply_before_cast ? scaled : Gamma::round(scaled);
        x[s][i] = y * gamma_[s][i];
      }
      store_eight<Config::kX>(row + column(s) * kXBytes, x[s]);
    }
  }

 private:
  static constexpr int kXBytes = bits(Config::kX) / 8;
  static constexpr int kGammaBytes = bits(Config::kGamma) / 8;

  __device__ int column(int slot) const {
    return (slot * Config::kLanes + lane_) * kEight;
  }
  __device__ bool is_used(int slot) const {
    return column(slot) < params_.columns;
  }

  const RmsNormParams& params_;
  int lane_;
  float inverse_columns_;
  float epsilon_;
  float gamma_[Config::kSlots][kEight] = {};  // with the offset
};

template <typename Config>
__global__ void __launch_bounds__(kThreads, 2)
    normalize_spans(const __grid_constant__ RmsNormParams params) {
  __shared__ std::byte* rows[Config::kBlockSpans + 1];  // of head 0, by token
  constexpr int kGroups = kThreads / Config::kLanes;
  const auto per_token = static_cast<int>(params.token_spans);
  const int lane = threadIdx.x % Config::kLanes;
  const int group = threadIdx.x / Config::kLanes;
  const int offset_bytes = params.view.row_format.parts[0].offset_bytes;
  const SpanNorm<Config> norm(params, lane);
  const std::int64_t num_spans = std::int64_t{params.row_offsets[params.view.batch]} * per_token;
  const std::int64_t step = std::int64_t{gridDim.x} * Config::kBlockSpans;

  for (std::int64_t first = std::int64_t{blockIdx.x} * Config::kBlockSpans; first < num_spans;
       first += step) {
    const std::int64_t first_token = first / per_token;
    const auto skipped = static_cast<int>(first - first_token * per_token);
    const std::int64_t left = num_spans - first;
    const int count = left < Config::kBlockSpans ? static_cast<int>(left) : Config::kBlockSpans;
    __syncthreads();  // the rows of the round before are read
    for (int t = threadIdx.x; t <= (skipped + count - 1) / per_token; t += kThreads) {
      rows[t] = first_row(params.view, place_of_token(params.row_offsets, params.view.cache_lengths,
                                                      params.view.batch, first_token + t));
    }
    __syncthreads();
    std::byte* spans[Config::kSpans];
    typename Eight<Config::kX>::Raw raw[Config::kSpans][Config::kSlots] = {};
#pragma unroll
    for (int r = 0; r < Config::kSpans; ++r) {
      const int span = r * kGroups + group;
      const int token = (skipped + span) / per_token;
      spans[r] = span < count ? rows[token] : nullptr;
      if (spans[r] != nullptr) {
        const int head = skipped + span - token * per_token;
        spans[r] += head * params.view.head_stride_bytes + offset_bytes;
      }
      norm.load(spans[r], raw[r]);
    }
#pragma unroll
    for (int r = 0; r < Config::kSpans; ++r) norm.store(raw[r], spans[r]);
  }
}

template <DType kX, DType kGamma>
void launch_for(const RmsNormParams& params, const SpanLayout& layout, const LaunchShape& shape,
                cudaStream_t stream) {
  if (layout.lanes == 8) {
    return launch(normalize_spans<SpanConfig<kX, kGamma, 8, 1>>, shape, stream, params);
  }
  if (layout.lanes == 16) {
    return launch(normalize_spans<SpanConfig<kX, kGamma, 16, 1>>, shape, stream, params);
  }
  if (layout.slots == 1) {
    return launch(normalize_spans<SpanConfig<kX, kGamma, 32, 1>>, shape, stream, params);
  }
  if (layout.slots == 2) {
    return launch(normalize_spans<SpanConfig<kX, kGamma, 32, 2>>, shape, stream, params);
  }
  launch(normalize_spans<SpanConfig<kX, kGamma, 32, 4>>, shape, stream, params);
}

template <DType kX>
void launch_for_gamma(const RmsNormParams& params, const SpanLayout& layout,
                      const LaunchShape& shape, cudaStream_t stream) {
  if (params.gamma_dtype == DType::bf16) {
    return launch_for<kX, DType::bf16>(params, layout, shape, stream);
  }
  if (params.gamma_dtype == DType::f16) {
    return launch_for<kX, DType::f16>(params, layout, shape, stream);
  }
  launch_for<kX, DType::f32>(params, layout, shape, stream);
}

}  // namespace

void launch_spans(const RmsNormParams& params, const SpanLayout& layout, unsigned max_blocks,
                  cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(max_blocks), .block = dim3(kThreads)};
  const DType x = params.view.row_format.parts[0].dtype;
  if (x == DType::bf16) return launch_for_gamma<DType::bf16>(params, layout, shape, stream);
  if (x == DType::f16) return launch_for_gamma<DType::f16>(params, layout, shape, stream);
  launch_for_gamma<DType::f32>(params, layout, shape, stream);
}

}  // namespace quire::cuda::hopper
