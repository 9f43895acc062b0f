// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/rows_rms_norm.cpp offers, per target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/rows/row_segments.h"
#include "cpu/rows/token_place.h"
#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"

namespace quire::cpu {

struct RmsNormJob {
  RowSegments columns;       // of one head, those that change
  std::int64_t num_columns;  // of one head
  std::int64_t num_heads;
  std::int64_t head_stride;     // bytes
  std::int64_t heads_per_mean;  // 1, or all
  const float* gamma;           // [num_columns · heads_per_mean], offset included
  DType gamma_dtype;
  bool multiply_before_cast;
  double epsilon;
};

struct RmsNormKernels {
  // gamma [count] of a dtype, plus an offset, as f32.
  void (*widen_gamma)(const std::byte* gamma, DType dtype, std::int64_t count, double offset,
                      float* wide);
  void (*normalize)(const RmsNormJob& job, const TokenPlace* places, std::int64_t num_places);
};

const RmsNormKernels& rms_norm_kernels(TargetTag<Target::portable>);
const RmsNormKernels& rms_norm_kernels(TargetTag<Target::avx2>);
const RmsNormKernels& rms_norm_kernels(TargetTag<Target::avx512>);
const RmsNormKernels& rms_norm_kernels(TargetTag<Target::avx512_vnni>);
const RmsNormKernels& rms_norm_kernels(TargetTag<Target::amx>);
const RmsNormKernels& rms_norm_kernels(TargetTag<Target::neon>);
const RmsNormKernels& rms_norm_kernels(TargetTag<Target::neon_bf16>);

inline const RmsNormKernels& rms_norm_kernels(Target target) {
  return on_target(target, [](auto tag) -> const RmsNormKernels& { return rms_norm_kernels(tag); });
}

}  // namespace quire::cpu
