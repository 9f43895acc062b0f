// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/attend.h"
#include "cpu/attention/kernels.h"
#include "cpu/simd/tile_bf16.h"
#include "cpu/simd/tile_f32.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

template <typename Engine> std::int64_t scratch_bytes(const AttentionShape& shape) {
  return Workspace<Engine>(shape, nullptr).used;
}

template <typename Engine> void attend(const AttentionItem& item, std::byte* scratch) {
  Attention<Engine>(item, scratch).run();
}

void merge(const MergeItem& item, std::byte* scratch) {
  for (std::int64_t row = 0; row < item.num_rows; ++row) {
    merge_row(item, row, reinterpret_cast<float*>(scratch));
  }
}

template <typename Engine> constexpr AttentionEngine engine_of() {
  return {.scratch_bytes = scratch_bytes<Engine>, .attend = attend<Engine>, .merge = merge};
}

constexpr AttentionKernels kAttentionKernels{.bf16 = engine_of<Bf16Engine>(),
                                             .f32 = engine_of<F32Engine>()};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const AttentionKernels& attention_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kAttentionKernels;
}

}  // namespace quire::cpu
