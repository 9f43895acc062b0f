// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/rows_remap.cpp offers, per target.
#pragma once

#include <cstdint>

#include "cpu/runtime/target_switch.h"
#include "quire/page_cursor.h"

namespace quire::cpu {

// Positions [count] of one sequence, and the rows they become. out may be the positions themselves.
struct RemapItem {
  PageCursor pages;  // of the sequence alone
  const std::int32_t* positions;
  std::int64_t stride;  // elements
  std::int64_t count;
  std::int32_t* out;
  std::int64_t out_stride;
};

struct RemapKernels {
  void (*remap)(const RemapItem& item);
};

const RemapKernels& remap_kernels(TargetTag<Target::portable>);
const RemapKernels& remap_kernels(TargetTag<Target::avx2>);
const RemapKernels& remap_kernels(TargetTag<Target::avx512>);
const RemapKernels& remap_kernels(TargetTag<Target::avx512_vnni>);
const RemapKernels& remap_kernels(TargetTag<Target::amx>);
const RemapKernels& remap_kernels(TargetTag<Target::neon>);
const RemapKernels& remap_kernels(TargetTag<Target::neon_bf16>);

inline const RemapKernels& remap_kernels(Target target) {
  return on_target(target, [](auto tag) -> const RemapKernels& { return remap_kernels(tag); });
}

}  // namespace quire::cpu
