// SPDX-License-Identifier: Apache-2.0
// A span stays in the registers of its lanes between the sum of squares and the write. How many
// tokens there are is known on the device alone, so the grid is as large as the card, and every warp walks: 32
// spans are found at once, a lane each.
#include "cuda/any/rms_norm/params.h"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::rms_norm {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr unsigned kAll = 0xffffffffu;

// Of gamma: nearly always x's own; asked at run time it costs 2 %.
enum class GammaType : std::uint8_t { as_x, any };

template <DType kXType, GammaType kGammaType, int kSpanLanes, int kLaneSlots> struct SpanConfig {
  static constexpr DType kX = kXType;
  static constexpr GammaType kGamma = kGammaType;
  static constexpr int kLanes = kSpanLanes;
  static constexpr int kSlots = kLaneSlots;
  static constexpr int kSpans = kSlots >= 3 ? 1 : 4 / kSlots;  // of a group of lanes, in flight
  static constexpr int kGroups = kWarp / kLanes;               // of a warp
  static constexpr int kWarpSpans = kGroups * kSpans;
  // As many as their registers allow.
  // f16 spills where bf16 does not: its numbers are converted, not shifted.
  static constexpr unsigned kBlocksPerSm = bits(kX) == 32 || kSlots > 2      ? 2
                                           : kSlots == 2 || kX == DType::f16 ? 3
                                                                             : 4;
};

template <typename Config> class SpanNorm {
 public:
  using X = Eight<Config::kX>;

  __device__ SpanNorm(const RmsNormParams& params, int lane)
      : params_(params),
        lane_(lane),
        inverse_columns_(1.0f / static_cast<float>(params.columns)),
        epsilon_(static_cast<float>(params.epsilon)) {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (is_used(s)) {
        load_vec8(params.gamma + column(s) * gamma_bytes(), gamma_dtype(), gamma_[s]);
      }
#pragma unroll
      for (int i = 0; i < kVec8; ++i) gamma_[s][i] += static_cast<float>(params.weight_offset);
    }
  }

  __device__ void load(const std::byte* row, typename X::Raw (&raw)[Config::kSlots]) const {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (row != nullptr && is_used(s)) raw[s] = X::load(row + column(s) * kXBytes);
    }
  }

  // Of the lane's columns, for the sum over its span's lanes.
  __device__ float squares(const typename X::Raw (&raw)[Config::kSlots]) const {
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      float x[kVec8];
      X::decode(raw[s], x);
      if (!is_used(s)) continue;
#pragma unroll
      for (int i = 0; i < kVec8; ++i) sum = fmaf(x[i], x[i], sum);
    }
    return sum;
  }

  // `sum`: the span's squares.
  __device__ void store(const typename X::Raw (&raw)[Config::kSlots], float sum,
                        std::byte* row) const {
    const float factor = __frsqrt_rn(fmaf(sum, inverse_columns_, epsilon_));
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (!is_used(s)) continue;
      float x[kVec8];
      X::decode(raw[s], x);
#pragma unroll
      for (int i = 0; i < kVec8; ++i) x[i] *= factor;
      if (!params_.multiply_before_cast) round_to_gamma(x);
#pragma unroll
      for (int i = 0; i < kVec8; ++i) x[i] *= gamma_[s][i];
      store_vec8<Config::kX>(row + column(s) * kXBytes, x);
    }
  }

 private:
  static constexpr int kXBytes = bits(Config::kX) / 8;

  __device__ DType gamma_dtype() const {
    return Config::kGamma == GammaType::as_x ? Config::kX : params_.gamma_dtype;
  }
  __device__ int gamma_bytes() const {
    return gamma_dtype() == DType::f32 ? 4 : 2;
  }
  __device__ void round_to_gamma(float (&x)[kVec8]) const {
    if (gamma_dtype() == DType::bf16) round_all<DType::bf16>(x);
    if (gamma_dtype() == DType::f16) round_all<DType::f16>(x);
  }
  template <DType kType> __device__ static void round_all(float (&x)[kVec8]) {
#pragma unroll
    for (int i = 0; i < kVec8; ++i) x[i] = Eight<kType>::round(x[i]);
  }

  __device__ int column(int slot) const {
    return (slot * Config::kLanes + lane_) * kVec8;
  }
  __device__ bool is_used(int slot) const {
    return column(slot) < params_.columns;
  }

  const RmsNormParams& params_;
  int lane_;
  float inverse_columns_;
  float epsilon_;
  float gamma_[Config::kSlots][kVec8] = {};  // with the offset
};

// Batches of kWarpSpans neighbouring spans, dealt to the warps of the grid in turn: what the card reads at a time
// is one run of memory.
template <typename Config> class SpanWalk {
 public:
  static constexpr int kBatches = kWarp / Config::kWarpSpans;  // that are found at once

  __device__ SpanWalk(const RmsNormParams& params, const Divisor& per_token,
                      const SpanNorm<Config>& norm)
      : params_(params),
        per_token_(per_token),
        norm_(norm),
        finder_(params.row_offsets, params.view.cache_lengths, params.view.batch),
        num_spans_(finder_.num_tokens() * per_token.value()) {}

  __device__ std::int64_t num_spans() const { return num_spans_; }

  // kBatches batches, `step` spans apart.
  __device__ void run(std::int64_t first, std::int64_t step) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    std::byte* found = find(first + lane / Config::kWarpSpans * step + lane % Config::kWarpSpans);
#pragma unroll 1
    for (int b = 0; b < kBatches && first + b * step < num_spans_; ++b) normalize(found, b);
  }

 private:
  // A lane its own span; null: nowhere.
  __device__ std::byte* find(std::int64_t span) const {
    const std::int64_t token = per_token_.quotient_of(span);
    std::byte* row = first_row(params_.view, finder_.find(token));
    if (row == nullptr) return nullptr;
    return row + (span - token * per_token_.value()) * params_.view.head_stride_bytes +
           params_.view.row_format.parts[0].offset_bytes;
  }

  __device__ void normalize(std::byte* found, int batch) const {
    const int group = static_cast<int>(threadIdx.x) % kWarp / Config::kLanes;
    std::byte* spans[Config::kSpans];
    typename Eight<Config::kX>::Raw raw[Config::kSpans][Config::kSlots] = {};
#pragma unroll
    for (int r = 0; r < Config::kSpans; ++r) {
      const auto span = __shfl_sync(kAll, reinterpret_cast<unsigned long long>(found),
                                    batch * Config::kWarpSpans + r * Config::kGroups + group);
      spans[r] = reinterpret_cast<std::byte*>(span);
      __builtin_assume(__isGlobal(spans[r]));
      norm_.load(spans[r], raw[r]);
    }
    float sums[Config::kSpans];
#pragma unroll
    for (int r = 0; r < Config::kSpans; ++r) sums[r] = norm_.squares(raw[r]);
#pragma unroll
    for (int step = Config::kLanes / 2; step > 0; step /= 2) {
#pragma unroll
      for (int r = 0; r < Config::kSpans; ++r) sums[r] += __shfl_xor_sync(kAll, sums[r], step);
    }
#pragma unroll
    for (int r = 0; r < Config::kSpans; ++r) {
      if (spans[r] != nullptr) norm_.store(raw[r], sums[r], spans[r]);
    }
  }

  const RmsNormParams& params_;
  const Divisor& per_token_;
  const SpanNorm<Config>& norm_;
  TokenFinder finder_;
  std::int64_t num_spans_;
};

template <typename Config>
__global__ void __launch_bounds__(kThreads, Config::kBlocksPerSm)
    normalize_spans(const __grid_constant__ RmsNormParams params,
                    const __grid_constant__ Divisor per_token) {
  const SpanNorm<Config> norm(params, threadIdx.x % Config::kLanes);
  const SpanWalk<Config> walk(params, per_token, norm);
  const std::int64_t step = std::int64_t{gridDim.x} * (kThreads / kWarp) * Config::kWarpSpans;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  for (std::int64_t first = warp * Config::kWarpSpans; first < walk.num_spans();
       first += step * SpanWalk<Config>::kBatches) {
    walk.run(first, step);
  }
}

template <typename Config>
void launch_config(const RmsNormParams& params, unsigned sms, cudaStream_t stream) {
  launch(normalize_spans<Config>,
         {.grid = dim3(Config::kBlocksPerSm * sms), .block = dim3(kThreads)}, stream, params,
         Divisor(static_cast<unsigned>(params.token_spans)));
}

template <DType kX, GammaType kGamma>
void launch_for(const RmsNormParams& params, const SpanLayout& layout, unsigned sms,
                cudaStream_t stream) {
  if (layout.lanes == 8) return launch_config<SpanConfig<kX, kGamma, 8, 1>>(params, sms, stream);
  if (layout.lanes == 16) return launch_config<SpanConfig<kX, kGamma, 16, 1>>(params, sms, stream);
  if (layout.slots == 1) return launch_config<SpanConfig<kX, kGamma, 32, 1>>(params, sms, stream);
  if (layout.slots == 2) return launch_config<SpanConfig<kX, kGamma, 32, 2>>(params, sms, stream);
  launch_config<SpanConfig<kX, kGamma, 32, 4>>(params, sms, stream);
}

template <DType kX>
void launch_for_gamma(const RmsNormParams& params, const SpanLayout& layout, unsigned sms,
                      cudaStream_t stream) {
  if (params.gamma_dtype == kX) {
    return launch_for<kX, GammaType::as_x>(params, layout, sms, stream);
  }
  launch_for<kX, GammaType::any>(params, layout, sms, stream);
}

}  // namespace

void launch_spans(const RmsNormParams& params, const SpanLayout& layout, unsigned sms,
                  cudaStream_t stream) {
  const DType x = params.view.row_format.parts[0].dtype;
  if (x == DType::bf16) return launch_for_gamma<DType::bf16>(params, layout, sms, stream);
  if (x == DType::f16) return launch_for_gamma<DType::f16>(params, layout, sms, stream);
  launch_for_gamma<DType::f32>(params, layout, sms, stream);
}

}  // namespace quire::cuda::any::rms_norm
