// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/rows_remap.cpp offers, per target.
#pragma once

#include <cstdint>

#include "cpu/runtime/target_switch.h"

namespace quire::cpu {

// One sequence's row of the page table.
struct RemapTable {
  const std::uint32_t* pages;  // [max_pages]
  std::int64_t max_pages;
  std::uint32_t num_pages;  // ids from here on are unassigned
  std::int32_t page_size;
};

struct RemapKernels {
  // Positions [count] to rows; strides in elements. out may be the positions themselves.
  void (*remap)(const RemapTable& table, const std::int32_t* positions, std::int64_t stride,
                std::int64_t count, std::int32_t* out, std::int64_t out_stride);
};

const RemapKernels& remap_kernels(TargetTag<Target::portable>);
const RemapKernels& remap_kernels(TargetTag<Target::avx2>);
const RemapKernels& remap_kernels(TargetTag<Target::avx512>);
const RemapKernels& remap_kernels(TargetTag<Target::amx>);
const RemapKernels& remap_kernels(TargetTag<Target::neon>);
const RemapKernels& remap_kernels(TargetTag<Target::neon_bf16>);

inline const RemapKernels& remap_kernels(Target target) {
  return on_target(target, [](auto tag) -> const RemapKernels& { return remap_kernels(tag); });
}

}  // namespace quire::cpu
