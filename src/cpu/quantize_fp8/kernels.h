// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/rows_quantize.cpp offers, per target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"

namespace quire::cpu {

struct QuantizeJob {
  const std::byte* x;  // [rows, columns]
  DType x_dtype;
  std::int64_t x_stride;  // bytes
  std::byte* out;
  DType out_dtype;
  std::int64_t out_stride;  // bytes
  std::byte* scale;         // f32 or e8m0 [rows, groups_per_row]
  DType scale_dtype;
  std::int64_t scale_row_stride;  // bytes
  std::int64_t scale_group_stride;
  std::int64_t columns;
  std::int64_t group_size;
  std::int64_t groups_per_row;
  double scale_upper_bound;
  bool power_of_two;
};

struct QuantizeKernels {
  // Groups [first, last) of all, counted row by row.
  void (*quantize)(const QuantizeJob& job, std::int64_t first, std::int64_t last);
};

const QuantizeKernels& quantize_kernels(TargetTag<Target::portable>);
const QuantizeKernels& quantize_kernels(TargetTag<Target::avx2>);
const QuantizeKernels& quantize_kernels(TargetTag<Target::avx512>);
const QuantizeKernels& quantize_kernels(TargetTag<Target::avx512_vnni>);
const QuantizeKernels& quantize_kernels(TargetTag<Target::amx>);
const QuantizeKernels& quantize_kernels(TargetTag<Target::neon>);
const QuantizeKernels& quantize_kernels(TargetTag<Target::neon_bf16>);

inline const QuantizeKernels& quantize_kernels(Target target) {
  return on_target(target,
                   [](auto tag) -> const QuantizeKernels& { return quantize_kernels(tag); });
}

}  // namespace quire::cpu
