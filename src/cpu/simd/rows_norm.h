// SPDX-License-Identifier: Apache-2.0
// RMSNorm of a run of columns: the sum of squares, and the product with factor and gamma.
#pragma once

#include "cpu/simd/rows_lanes.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// In f64 lanes: the factor is then as good as exact, and so is the point where
// multiply_before_cast = false rounds.
template <DType kType> inline double sum_of_squares(const std::byte* x, std::int64_t count) {
  const F64Tag f64;
  F64Vector lower = hn::Zero(f64);
  F64Vector upper = hn::Zero(f64);
  over_lanes(count, [&](std::int64_t i, auto lanes) {
    const F32Vector value = load_lanes<kType>(x + i * kElementBytes<kType>, lanes);
    const F64Vector low = lower_as_f64(value);
    const F64Vector high = upper_as_f64(value);
    lower = hn::MulAdd(low, low, lower);
    upper = hn::MulAdd(high, high, upper);
  });
  return hn::GetLane(hn::SumOfLanes(f64, hn::Add(lower, upper)));
}

inline double norm_factor(double sum, std::int64_t count, double epsilon) {
  return 1.0 / __builtin_sqrt(sum / static_cast<double>(count) + epsilon);
}

// Lanes: AllLanes or FirstLanes.
template <typename Lanes> inline F32Vector load_gamma(const float* gamma, Lanes lanes) {
  return load_lanes<DType::f32>(reinterpret_cast<const std::byte*>(gamma), lanes);
}

// x · factor · gamma, in place.
template <DType kType>
inline void scale_columns(std::byte* x, std::int64_t count, double factor, const float* gamma) {
  const F32Vector scale = hn::Set(F32Tag(), static_cast<float>(factor));
  over_lanes(count, [&](std::int64_t i, auto lanes) {
    std::byte* place = x + i * kElementBytes<kType>;
    const F32Vector value = hn::Mul(load_lanes<kType>(place, lanes), scale);
    store_lanes<kType>(hn::Mul(value, load_gamma(gamma + i, lanes)), place, lanes);
  });
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
