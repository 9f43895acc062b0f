// SPDX-License-Identifier: Apache-2.0
#include "cpu/quantize_fp8/kernels.h"
#include "cpu/simd/rows_encode.h"
#include "cpu/simd/rows_scale.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

float scale_for(const QuantizeJob& job, double amax) {
  const double bounded = job.scale_upper_bound < amax ? job.scale_upper_bound : amax;
  const double largest_code = job.out_dtype == DType::fp8_e4m3 ? 448.0 : 57344.0;
  const float scale = fp8_scale(bounded, largest_code, job.power_of_two);
  // e8m0 has no infinity: the row is divided by the scale that it keeps.
  constexpr float kLargestPower = 0x1p127f;
  return job.scale_dtype == DType::e8m0 && scale > kLargestPower ? kLargestPower : scale;
}

template <DType kFrom, DType kTo>
void quantize_groups(const QuantizeJob& job, std::int64_t first, std::int64_t last) {
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t row = i / job.groups_per_row;
    const std::int64_t group = i % job.groups_per_row;
    const std::int64_t column = group * job.group_size;
    const std::int64_t rest = job.columns - column;
    const std::int64_t count = rest < job.group_size ? rest : job.group_size;
    const std::byte* x = job.x + row * job.x_stride + column * kElementBytes<kFrom>;
    const float scale = scale_for(job, largest_of<kFrom>(x, count));
    narrow_one(job.scale_dtype, scale,
               job.scale + row * job.scale_row_stride + group * job.scale_group_stride);
    quantize_row<kFrom, kTo>(x, count, scale, job.out + row * job.out_stride + column);
  }
}

void quantize(const QuantizeJob& job, std::int64_t first, std::int64_t last) {
  on_activation(job.x_dtype, [&](auto from) {
    constexpr DType kFrom = decltype(from)::kValue;
    if (job.out_dtype == DType::fp8_e4m3) {
      quantize_groups<kFrom, DType::fp8_e4m3>(job, first, last);
    } else {
      quantize_groups<kFrom, DType::fp8_e5m2>(job, first, last);
    }
  });
}

constexpr QuantizeKernels kQuantizeKernels{.quantize = quantize};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const QuantizeKernels& quantize_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kQuantizeKernels;
}

}  // namespace quire::cpu
