// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/key_scores.cpp offers, per target: products of query rows with the keys of one KV head, in fp32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/row_plan.h"
#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"
#include "quire/row_layout.h"

namespace quire::cpu {

inline constexpr int kScoredKeys = 64;

struct KeyScoreItem {
  const std::byte* const* queries;  // [rows] rows of `width` numbers
  DType q_dtype;
  std::int64_t rows;
  std::int64_t width;
  RowPlan plan;  // of the keys
};

// The queries stay packed in the scratch from one chunk of keys to the next.
struct KeyScoreKernels {
  std::int64_t (*scratch_bytes)(std::int64_t rows, std::int64_t width);
  void (*pack_queries)(const KeyScoreItem& item, std::byte* scratch);
  // scores [rows, kScoredKeys] of `count` keys; those of keys without a row mean nothing.
  void (*score)(const KeyScoreItem& item, const RowAddress* keys, int count, float* scores,
                std::byte* scratch);
};

const KeyScoreKernels& key_score_kernels(TargetTag<Target::portable>);
const KeyScoreKernels& key_score_kernels(TargetTag<Target::avx2>);
const KeyScoreKernels& key_score_kernels(TargetTag<Target::avx512>);
const KeyScoreKernels& key_score_kernels(TargetTag<Target::avx512_vnni>);
const KeyScoreKernels& key_score_kernels(TargetTag<Target::amx>);
const KeyScoreKernels& key_score_kernels(TargetTag<Target::neon>);
const KeyScoreKernels& key_score_kernels(TargetTag<Target::neon_bf16>);

inline const KeyScoreKernels& key_score_kernels(Target target) {
  return on_target(target,
                   [](auto tag) -> const KeyScoreKernels& { return key_score_kernels(tag); });
}

}  // namespace quire::cpu
