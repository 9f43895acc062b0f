// SPDX-License-Identifier: Apache-2.0
// rms_norm of the new rows of K or V, in place. Spans of whole, aligned vectors stay in the registers of their lanes
// between the sum of squares and the write; all others are a warp's each, in double. How many tokens there are is known on
// the device alone, so the grid is as large as the card, and every warp walks.
#include <optional>

#include "cuda/any/companions.h"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/alignment.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::rms_norm {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr unsigned kAll = 0xffffffffu;

struct RmsNormParams {
  KvLayerView view;
  const std::uint32_t* row_offsets;
  const std::byte* gamma;  // [columns]
  DType gamma_dtype;
  std::int64_t columns;      // of a span
  std::int64_t token_spans;  // heads, or 1: the whole token
  double epsilon;
  double weight_offset;
  bool multiply_before_cast;
};

// Lanes that share a span and the vectors of eight columns that each of them holds.
struct SpanLayout {
  int lanes;
  int slots;
};

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
  using X = Vec8<Config::kX>;

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
    for (int i = 0; i < kVec8; ++i) x[i] = Vec8<kType>::round(x[i]);
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
// is one run of memory. 32 spans are found at once, a lane each.
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
    typename Vec8<Config::kX>::Raw raw[Config::kSpans][Config::kSlots] = {};
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
    sum_lanes<Config::kLanes>(sums);
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

// Spans of whole, aligned vectors without a gap, in one part.
std::optional<SpanLayout> span_layout(const RmsNormParams& params) {
  const KvLayerView& view = params.view;
  const RowPart& part = view.row_format.parts[0];
  const bool is_token = params.token_spans == 1 && view.num_heads > 1;
  const bool has_gaps = is_token && (view.head_stride_bytes != view.row_format.row_bytes ||
                                     !view.row_format.is_uniform());
  const bool fits = !has_gaps && bits(part.dtype) > 8 && params.columns % kVec8 == 0 &&
                    (is_token || params.columns <= part.width);
  const bool aligned =
      are_aligned(kVectorBytes, view.data, part.offset_bytes, view.page_stride_bytes,
                  view.token_stride_bytes, is_token ? 0 : view.head_stride_bytes, params.gamma);
  if (!fits || !aligned) return std::nullopt;
  const std::int64_t vectors = params.columns / kVec8;
  const int lanes = vectors <= 8 ? 8 : vectors <= 16 ? 16 : 32;
  const std::int64_t slots = (vectors + lanes - 1) / lanes;
  if (slots > 4) return std::nullopt;
  return SpanLayout{.lanes = lanes, .slots = static_cast<int>(slots)};
}

void launch_spans(const RmsNormParams& params, const SpanLayout& layout, unsigned sms,
                  cudaStream_t stream) {
  with_vec8_type(params.view.row_format.parts[0].dtype, [&]<DType kX>() {
    if (params.gamma_dtype == kX) {
      return launch_for<kX, GammaType::as_x>(params, layout, sms, stream);
    }
    launch_for<kX, GammaType::any>(params, layout, sms, stream);
  });
}

// The stored number i of a span whose first row is `row`; columns run on into the next heads.
struct Stored {
  std::byte* base;
  DType dtype;
  int index;
};

__device__ Stored stored(const KvLayerView& view, std::byte* row, std::int64_t i) {
  const int width = view.row_format.width();
  const std::int64_t head = i / width;
  const RowFormat::Column place = view.row_format.locate(static_cast<int>(i - head * width));
  const RowPart& part = view.row_format.parts[place.part];
  return {row + head * view.head_stride_bytes + part.offset_bytes, part.dtype, place.index};
}

__device__ void normalize(const RmsNormParams& params, std::byte* row) {
  const int lane = threadIdx.x % kWarp;
  double sum = 0.0;
  for (std::int64_t i = lane; i < params.columns; i += kWarp) {
    const Stored at = stored(params.view, row, i);
    const double x = load_row_number(at.base, at.dtype, at.index);
    sum += x * x;
  }
  const double factor =
      1.0 / sqrt(warp_sum(sum) / static_cast<double>(params.columns) + params.epsilon);
  for (std::int64_t i = lane; i < params.columns; i += kWarp) {
    const Stored at = stored(params.view, row, i);
    double y = load_row_number(at.base, at.dtype, at.index) * factor;
    if (!params.multiply_before_cast) y = round_number(params.gamma_dtype, y);
    y *= load_number(params.gamma, params.gamma_dtype, i) + params.weight_offset;
    store_row_number(at.base, at.dtype, at.index, y);
  }
}

__global__ void __launch_bounds__(kThreads)
    normalize_general(const __grid_constant__ RmsNormParams params) {
  const std::int64_t num_spans =
      std::int64_t{params.row_offsets[params.view.batch]} * params.token_spans;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads / kWarp;
  for (std::int64_t span = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
       span < num_spans; span += step) {
    const std::int64_t token = span / params.token_spans;
    std::byte* row = first_row(
        params.view,
        place_of_token(params.row_offsets, params.view.cache_lengths, params.view.batch, token));
    if (row == nullptr) continue;
    normalize(params, row + (span - token * params.token_spans) * params.view.head_stride_bytes);
  }
}

}  // namespace

void rms_norm(const RmsNormArgs& args, const Context& context) {
  const DeviceScope scope(args.gamma.device);
  const KvLayerView view =
      args.side == KvSide::key ? args.cache.key(args.layer) : args.cache.value(args.layer);
  const RmsNormParams params{.view = view,
                             .row_offsets = args.row_offsets.as<const std::uint32_t>(),
                             .gamma = args.gamma.as<const std::byte>(),
                             .gamma_dtype = args.gamma.dtype,
                             .columns = args.gamma.shape[0],
                             .token_spans = args.per_head ? view.num_heads : 1,
                             .epsilon = args.epsilon,
                             .weight_offset = args.weight_offset,
                             .multiply_before_cast = args.multiply_before_cast};
  if (view.batch == 0) return;
  const auto sms = static_cast<unsigned>(num_sms(args.gamma.device.index));
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (const auto layout = span_layout(params)) return launch_spans(params, *layout, sms, stream);
  constexpr unsigned kBlocksPerSm = 2048 / kThreads;  // as many as an SM holds
  launch(normalize_general, {.grid = dim3(kBlocksPerSm * sms), .block = dim3(kThreads)}, stream,
         params);
}

}  // namespace quire::cuda::any::rms_norm
