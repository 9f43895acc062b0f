// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/rows_store.cpp offers, per target. Strides are bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/rows/token_place.h"
#include "cpu/runtime/row_plan.h"
#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"

namespace quire::cpu {

struct StoreJob {
  const std::byte* x;  // [tokens, heads, width]
  DType x_dtype;
  std::int64_t x_token_stride;
  std::int64_t x_head_stride;
  std::int64_t num_heads;
  RowPlan plan;
  std::int64_t row_head_stride;
  std::int64_t plane_head_stride;
  bool holds_codes;  // x has the rows' own type: stored as it is, scales left alone
};

struct StoreScalesJob {
  const std::byte* scales;  // [tokens, heads, slots]
  DType dtype;
  std::int64_t token_stride;
  std::int64_t head_stride;
  std::int64_t slot_stride;
  std::int64_t num_heads;
  const std::int32_t* slots;  // [num_slots] those that some column belongs to
  std::int64_t num_slots;
  DType plane_dtype;
  std::int64_t plane_head_stride;
  std::int64_t plane_slot_stride;
};

struct StoreKernels {
  // scales: scratch [plan.num_granules]
  void (*store)(const StoreJob& job, const TokenPlace* places, std::int64_t num_places,
                double* scales);
  void (*store_scales)(const StoreScalesJob& job, const TokenPlace* places,
                       std::int64_t num_places);
};

const StoreKernels& store_kernels(TargetTag<Target::portable>);
const StoreKernels& store_kernels(TargetTag<Target::avx2>);
const StoreKernels& store_kernels(TargetTag<Target::avx512>);
const StoreKernels& store_kernels(TargetTag<Target::avx512_vnni>);
const StoreKernels& store_kernels(TargetTag<Target::amx>);
const StoreKernels& store_kernels(TargetTag<Target::neon>);
const StoreKernels& store_kernels(TargetTag<Target::neon_bf16>);

inline const StoreKernels& store_kernels(Target target) {
  return on_target(target, [](auto tag) -> const StoreKernels& { return store_kernels(tag); });
}

}  // namespace quire::cpu
