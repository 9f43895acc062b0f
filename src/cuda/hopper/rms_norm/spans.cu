// SPDX-License-Identifier: Apache-2.0
// A span stays in the registers of its lanes between the sum of squares and the write. How many
// tokens there are is known on the device alone, so the grid is as large as the card and walks.
#include "cuda/hopper/rms_norm/params.h"
#include "cuda/rows/divisor.h"
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
  // The grid is what an SM holds at once: with more blocks the last ones run on an idle card.
  static constexpr int kBlocksPerSm = kSlots * bits(kX) <= 32 ? 4 : 2;
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

// Spans that a block works on at a time, and the rows of their tokens.
template <typename Config> struct SpanBatch {
  std::int64_t first;
  std::int64_t first_token;
  int skipped;  // spans of the first token that are another batch's
  int count;

  __device__ SpanBatch(std::int64_t begin, std::int64_t num_spans, const Divisor& per_token)
      : first(begin), first_token(per_token.quotient_of(begin)) {
    skipped = static_cast<int>(begin - first_token * per_token.value());
    const std::int64_t left = num_spans - begin;
    count = left < Config::kBlockSpans ? static_cast<int>(left) : Config::kBlockSpans;
  }

  // Rows of head 0 by token, null where there is no page.
  __device__ void find_rows(const RmsNormParams& params, const Divisor& per_token,
                            std::byte** rows) const {
    if (count <= 0) return;
    for (unsigned t = threadIdx.x; t <= per_token.quotient(skipped + count - 1); t += kThreads) {
      rows[t] = first_row(params.view, place_of_token(params.row_offsets, params.view.cache_lengths,
                                                      params.view.batch, first_token + t));
    }
  }

  __device__ std::byte* span(const RmsNormParams& params, const Divisor& per_token,
                             std::byte* const* rows, int index) const {
    if (index >= count) return nullptr;
    const unsigned token = per_token.quotient(skipped + index);
    std::byte* row = rows[token];
    const std::int64_t head = skipped + index - token * per_token.value();
    return row == nullptr ? nullptr
                          : row + head * params.view.head_stride_bytes +
                                params.view.row_format.parts[0].offset_bytes;
  }
};

template <typename Config>
__global__ void __launch_bounds__(kThreads, Config::kBlocksPerSm)
    normalize_spans(const __grid_constant__ RmsNormParams params,
                    const __grid_constant__ Divisor per_token) {
  using Batch = SpanBatch<Config>;
  __shared__ std::byte* rows[2][Config::kBlockSpans + 1];  // of this batch and of the next
  constexpr int kGroups = kThreads / Config::kLanes;
  const int group = threadIdx.x / Config::kLanes;
  const SpanNorm<Config> norm(params, threadIdx.x % Config::kLanes);
  const std::int64_t num_spans =
      std::int64_t{params.row_offsets[params.view.batch]} * per_token.value();
  const std::int64_t step = std::int64_t{gridDim.x} * Config::kBlockSpans;
  int turn = 0;
  const std::int64_t start = std::int64_t{blockIdx.x} * Config::kBlockSpans;
  if (start < num_spans) Batch(start, num_spans, per_token).find_rows(params, per_token, rows[0]);
  for (std::int64_t first = start; first < num_spans; first += step, turn ^= 1) {
    __syncthreads();
    const Batch batch(first, num_spans, per_token);
    std::byte* spans[Config::kSpans];
    typename Eight<Config::kX>::Raw raw[Config::kSpans][Config::kSlots] = {};
#pragma unroll
    for (int r = 0; r < Config::kSpans; ++r) {
      spans[r] = batch.span(params, per_token, rows[turn], r * kGroups + group);
      norm.load(spans[r], raw[r]);
    }
    // The pages of the next batch are looked up while this one's rows are on their way.
    if (first + step < num_spans) {
      Batch(first + step, num_spans, per_token).find_rows(params, per_token, rows[turn ^ 1]);
    }
#pragma unroll
    for (int r = 0; r < Config::kSpans; ++r) norm.store(raw[r], spans[r]);
  }
}

template <typename Config>
void launch_config(const RmsNormParams& params, const SpanLayout& layout, int num_sms,
                   cudaStream_t stream) {
  launch(normalize_spans<Config>,
         {.grid = dim3(static_cast<unsigned>(Config::kBlocksPerSm * num_sms)),
          .block = dim3(kThreads)},
         stream, params, layout.token_spans);
}

template <DType kX, DType kGamma>
void launch_for(const RmsNormParams& params, const SpanLayout& layout, int num_sms,
                cudaStream_t stream) {
  if (layout.lanes == 8) {
    return launch_config<SpanConfig<kX, kGamma, 8, 1>>(params, layout, num_sms, stream);
  }
  if (layout.lanes == 16) {
    return launch_config<SpanConfig<kX, kGamma, 16, 1>>(params, layout, num_sms, stream);
  }
  if (layout.slots == 1) {
    return launch_config<SpanConfig<kX, kGamma, 32, 1>>(params, layout, num_sms, stream);
  }
  if (layout.slots == 2) {
    return launch_config<SpanConfig<kX, kGamma, 32, 2>>(params, layout, num_sms, stream);
  }
  launch_config<SpanConfig<kX, kGamma, 32, 4>>(params, layout, num_sms, stream);
}

template <DType kX>
void launch_for_gamma(const RmsNormParams& params, const SpanLayout& layout, int num_sms,
                      cudaStream_t stream) {
  if (params.gamma_dtype == DType::bf16) {
    return launch_for<kX, DType::bf16>(params, layout, num_sms, stream);
  }
  if (params.gamma_dtype == DType::f16) {
    return launch_for<kX, DType::f16>(params, layout, num_sms, stream);
  }
  launch_for<kX, DType::f32>(params, layout, num_sms, stream);
}

}  // namespace

void launch_spans(const RmsNormParams& params, const SpanLayout& layout, int num_sms,
                  cudaStream_t stream) {
  const DType x = params.view.row_format.parts[0].dtype;
  if (x == DType::bf16) return launch_for_gamma<DType::bf16>(params, layout, num_sms, stream);
  if (x == DType::f16) return launch_for_gamma<DType::f16>(params, layout, num_sms, stream);
  launch_for_gamma<DType::f32>(params, layout, num_sms, stream);
}

}  // namespace quire::cuda::hopper
