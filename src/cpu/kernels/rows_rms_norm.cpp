// SPDX-License-Identifier: Apache-2.0
#include "cpu/rms_norm/kernels.h"
#include "cpu/simd/rows_norm.h"
#include "cpu/simd/rows_quotient.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

void widen_gamma(const std::byte* gamma, DType dtype, std::int64_t count, double offset,
                 float* wide) {
  widen_row(dtype, gamma, count, wide);
  for (std::int64_t i = 0; i < count; ++i) {
    wide[i] = static_cast<float>(static_cast<double>(wide[i]) + offset);
  }
}

// value in kGamma, as f32.
template <DType kGamma> inline F32Vector round_lanes(F32Vector value) {
  alignas(64) std::byte codes[kF32Lanes * kElementBytes<kGamma>];
  store_from_f32<kGamma>(value, codes);
  return load_as_f32<kGamma>(codes);
}

// The normalized value is rounded to gamma's type before gamma multiplies it: once, from double.
template <DType kType, DType kGamma>
void cast_and_scale_columns(std::byte* x, std::int64_t count, double factor, const float* gamma) {
  const F64Vector scale = hn::Set(F64Tag(), factor);
  over_lanes(count, [&](std::int64_t i, auto lanes) {
    std::byte* place = x + i * kElementBytes<kType>;
    const F32Vector value = load_lanes<kType>(place, lanes);
    const F64Vector lower = hn::Mul(lower_as_f64(value), scale);
    const F64Vector upper = hn::Mul(upper_as_f64(value), scale);
    F32Vector normalized;
    if constexpr (kGamma == DType::f32) {
      const F32HalfTag half;
      normalized = hn::Combine(F32Tag(), hn::DemoteTo(half, upper), hn::DemoteTo(half, lower));
    } else {
      normalized = round_lanes<kGamma>(demote_to_odd(lower, upper));
    }
    store_lanes<kType>(hn::Mul(normalized, load_gamma(gamma + i, lanes)), place, lanes);
  });
}

// The columns that share one mean, from head `row` on.
class Span {
 public:
  Span(const RmsNormJob& job, std::byte* row) : job_(job), row_(row) {}

  void normalize() const {
    double sum = 0.0;
    over_segments([&](const RowSegment& segment, std::byte* x, const float*) {
      on_float(segment.dtype,
               [&](auto type) { sum += sum_of_squares<decltype(type)::kValue>(x, segment.count); });
    });
    const double factor = norm_factor(sum, job_.num_columns * job_.heads_per_mean, job_.epsilon);
    over_segments([&](const RowSegment& segment, std::byte* x, const float* gamma) {
      on_float(segment.dtype,
               [&](auto type) { scale<decltype(type)::kValue>(x, segment.count, factor, gamma); });
    });
  }

 private:
  template <typename Function> void over_segments(Function function) const {
    const float* gamma = job_.gamma;
    for (std::int64_t head = 0; head < job_.heads_per_mean; ++head) {
      for (std::int32_t s = 0; s < job_.columns.count; ++s) {
        const RowSegment& segment = job_.columns.items[s];
        function(segment, row_ + head * job_.head_stride + segment.offset_bytes, gamma);
        gamma += segment.count;
      }
    }
  }

  template <DType kType>
  void scale(std::byte* x, std::int64_t count, double factor, const float* gamma) const {
    if (job_.multiply_before_cast) return scale_columns<kType>(x, count, factor, gamma);
    on_activation(job_.gamma_dtype, [&](auto cast) {
      cast_and_scale_columns<kType, decltype(cast)::kValue>(x, count, factor, gamma);
    });
  }

  const RmsNormJob& job_;
  std::byte* row_;
};

void normalize(const RmsNormJob& job, const TokenPlace* places, std::int64_t num_places) {
  for (std::int64_t i = 0; i < num_places; ++i) {
    if (places[i].row == nullptr) continue;
    for (std::int64_t head = 0; head < job.num_heads; head += job.heads_per_mean) {
      Span(job, places[i].row + head * job.head_stride).normalize();
    }
  }
}

constexpr RmsNormKernels kRmsNormKernels{.widen_gamma = widen_gamma, .normalize = normalize};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const RmsNormKernels& rms_norm_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kRmsNormKernels;
}

}  // namespace quire::cpu
