// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/rows_merge.cpp offers, per target. Strides of states and out are bytes,
// those of LSEs elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"

namespace quire::cpu {

struct MergeJob {
  const std::byte* states;  // [num_states, tokens, heads, value_dim]
  DType dtype;
  std::int64_t state_stride;
  std::int64_t token_stride;
  std::int64_t head_stride;
  const float* lses;  // [num_states, tokens, heads]
  std::int64_t lses_state_stride;
  std::int64_t lses_token_stride;
  std::int64_t lses_head_stride;
  std::byte* out;  // [tokens, heads, value_dim]
  DType out_dtype;
  std::int64_t out_token_stride;
  std::int64_t out_head_stride;
  float* lse;  // [tokens, heads], null: not wanted
  std::int64_t lse_token_stride;
  std::int64_t lse_head_stride;
  std::int64_t num_states;
  std::int64_t num_heads;
  std::int64_t value_dim;
};

struct MergeKernels {
  std::int64_t (*scratch_bytes)(const MergeJob& job);
  // Rows [first, last) of tokens · heads.
  void (*merge)(const MergeJob& job, std::int64_t first, std::int64_t last, std::byte* scratch);
};

const MergeKernels& merge_kernels(TargetTag<Target::portable>);
const MergeKernels& merge_kernels(TargetTag<Target::avx2>);
const MergeKernels& merge_kernels(TargetTag<Target::avx512>);
const MergeKernels& merge_kernels(TargetTag<Target::avx512_vnni>);
const MergeKernels& merge_kernels(TargetTag<Target::amx>);
const MergeKernels& merge_kernels(TargetTag<Target::neon>);
const MergeKernels& merge_kernels(TargetTag<Target::neon_bf16>);

inline const MergeKernels& merge_kernels(Target target) {
  return on_target(target, [](auto tag) -> const MergeKernels& { return merge_kernels(tag); });
}

}  // namespace quire::cpu
