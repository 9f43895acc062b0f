// SPDX-License-Identifier: Apache-2.0
// Writes one cache row from f32 values, with its dynamic scales (rules:
// cpu/runtime/row_encoding.h).
#pragma once

#include "cpu/runtime/row_plan.h"
#include "cpu/simd/rows_quotient.h"
#include "cpu/simd/rows_scale.h"
#include "cpu/simd/rows_zeros.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Largest |value|; NaN does not count.
inline float largest_magnitude(const float* values, std::int64_t count) {
  const F32Tag f32;
  F32Vector largest = hn::Zero(f32);
  std::int64_t i = 0;
  for (; i + kF32Lanes <= count; i += kF32Lanes) {
    const F32Vector magnitude = hn::Abs(hn::LoadU(f32, values + i));
    largest = hn::IfThenElse(hn::Gt(magnitude, largest), magnitude, largest);
  }
  float result = hn::GetLane(hn::MaxOfLanes(f32, largest));
  for (; i < count; ++i) {
    const float magnitude = __builtin_fabsf(values[i]);
    if (magnitude > result) result = magnitude;
  }
  return result;
}

template <typename Quotient>
inline void divide_lanes(float* values, std::int64_t count, Quotient quotient) {
  over_lanes(count, [&](std::int64_t i, auto lanes) {
    std::byte* at = reinterpret_cast<std::byte*>(values + i);
    store_lanes<DType::f32>(quotient(load_lanes<DType::f32>(at, lanes)), at, lanes);
  });
}

// values ← value / scale, such that rounding them to `stored` rounds the exact quotient: an f32
// quotient falls on a middle between two codes by its own rounding, and does so often where amax is
// a small multiple of 7 · 2^n (448 / 7 is a power of two). A scale of 0 stands for zeros.
inline void divide_by(float* values, std::int64_t count, float scale, DType stored) {
  if (scale == 0.0f) {
    divide_lanes(values, count, ZeroQuotient());
  } else if (bits(stored) > 16) {
    divide_lanes(values, count, PlainQuotient(scale));
  } else if (bits(stored) <= 8 && FusedQuotient::takes(scale)) {
    divide_lanes(values, count, FusedQuotient(scale));
  } else {
    divide_lanes(values, count, WideQuotient(scale));
  }
}

// scales [num_granules] gets the scale of each granule without zeros; new ones are written beside the row.
// plane: the token's and head's slot 0 in the scales tensor, or null.
inline void choose_scales(const RowPlan& plan, const float* values, std::byte* row,
                          std::byte* plane, float* scales) {
  for (std::int32_t g = 0; g < plan.num_granules; ++g) scales[g] = 0.0f;
  for (std::int32_t r = 0; r < plan.num_runs; ++r) {
    const RowRun& run = plan.runs[r];
    if (run.granule < 0 || bits(run.dtype) > 8 || run.dtype == DType::u4) continue;
    const float needed =
        largest_magnitude(values + run.column, run.count) / max_finite_of(run.dtype);
    if (needed > scales[run.granule]) scales[run.granule] = needed;
  }
  for (std::int32_t g = 0; g < plan.num_granules; ++g) {
    const RowGranule& granule = plan.granules[g];
    if (granule.has_zeros) continue;
    std::byte* address = granule.source == GranuleScale::in_row ? row : plane;
    if (address != nullptr) address += granule.scale_offset;
    if (granule.source == GranuleScale::given) {
      scales[g] = address == nullptr ? 0.0f : widen_one(granule.scale_dtype, address);
      continue;
    }
    const auto lowest = static_cast<float>(lowest_scale(granule.scale_dtype));
    if (scales[g] < lowest) scales[g] = lowest;
    std::byte rounded[4];
    narrow_one(granule.scale_dtype, scales[g], rounded);
    scales[g] = widen_one(granule.scale_dtype, rounded);
    if (scales[g] == 0.0f && granule.has_wide) scales[g] = 1.0f;
    if (address != nullptr) narrow_one(granule.scale_dtype, scales[g], address);
  }
}

// values [width] is used up. scales: scratch [num_granules].
inline void encode_row(const RowPlan& plan, float* values, std::byte* row, std::byte* plane,
                       float* scales) {
  if (row == nullptr) return;
  if (plan.num_granules > 0) choose_scales(plan, values, row, plane, scales);
  for (std::int32_t r = 0; r < plan.num_runs; ++r) {
    const RowRun& run = plan.runs[r];
    if (run.dtype == DType::u4) {
      const auto* x = reinterpret_cast<const std::byte*>(values + run.column);
      encode_with_zeros<DType::f32>(x, run, plan.granules[run.granule], row);
      continue;
    }
    if (run.granule >= 0) divide_by(values + run.column, run.count, scales[run.granule], run.dtype);
    narrow_row(run.dtype, values + run.column, run.count, row + run.offset_bytes);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
