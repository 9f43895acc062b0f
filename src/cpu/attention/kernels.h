// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/attention.cpp offers, per target and engine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/attention/item.h"
#include "cpu/runtime/target_switch.h"

namespace quire::cpu {

struct AttentionEngine {
  // Query rows of a KV head up to which its keys are streamed past them (AttentionItem::is_streamed).
  std::int64_t most_streamed_rows;
  std::int64_t (*scratch_bytes)(const AttentionShape& shape);
  void (*attend)(const AttentionItem& item, std::byte* scratch);
  // The same over rows that are projected up, for one head.
  std::int64_t (*projected_scratch_bytes)(const AttentionShape& shape, const UpProjection& up);
  void (*attend_projected)(const AttentionItem& item, const UpProjection& up, std::byte* scratch);
  void (*merge)(const MergeItem& item, std::byte* scratch);
};

struct AttentionKernels {
  AttentionEngine bf16;
  AttentionEngine f32;
};

const AttentionKernels& attention_kernels(TargetTag<Target::portable>);
const AttentionKernels& attention_kernels(TargetTag<Target::avx2>);
const AttentionKernels& attention_kernels(TargetTag<Target::avx512>);
const AttentionKernels& attention_kernels(TargetTag<Target::avx512_vnni>);
const AttentionKernels& attention_kernels(TargetTag<Target::amx>);
const AttentionKernels& attention_kernels(TargetTag<Target::neon>);
const AttentionKernels& attention_kernels(TargetTag<Target::neon_bf16>);

inline const AttentionKernels& attention_kernels(Target target) {
  return on_target(target,
                   [](auto tag) -> const AttentionKernels& { return attention_kernels(tag); });
}

// bf16 queries run on the bf16 engine; f16 has 3 bits more than its products and takes f32.
inline const AttentionEngine& attention_engine(Target target, DType q_dtype) {
  const AttentionKernels& kernels = attention_kernels(target);
  return q_dtype == DType::bf16 ? kernels.bf16 : kernels.f32;
}

}  // namespace quire::cpu
