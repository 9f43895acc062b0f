// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/rows_rope.cpp offers, per target. Strides are bytes unless noted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/rows/row_segments.h"
#include "cpu/rows/token_place.h"
#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"

namespace quire::cpu {

// Pairs [first, first + count) whose angles come from one row of position_ids.
struct RopeSection {
  std::int64_t first;
  std::int64_t count;
  const std::uint32_t* position_ids;  // [tokens], null: the token's own position
};

// RMSNorm before the rotation, over the first columns of a row.
struct RopeNorm {
  const float* gamma;  // [columns], offset included; null: no norm
  std::int64_t columns;
};

struct RopeJob {
  const std::byte* q;  // [tokens, heads, head_dim]
  DType q_dtype;
  std::int64_t q_token_stride;
  std::int64_t q_head_stride;
  std::byte* out;
  DType out_dtype;
  std::int64_t out_token_stride;
  std::int64_t out_head_stride;
  std::int64_t num_heads;
  std::int64_t head_dim;
  const std::byte* freqs_cis;  // [max_pos, rope_dim]: cos, sin interleaved
  DType freqs_dtype;
  std::int64_t freqs_stride;
  std::int64_t rope_dim;
  bool interleaved;
  bool inverse;  // by the negative angles
  const RopeSection* sections;
  std::int64_t num_sections;
  std::int64_t ids_stride;     // elements, along the tokens
  RowSegments key;             // the rotated columns of a key row that no norm changes
  std::int64_t key_first;      // the first of them
  std::int64_t key_rotated;    // the first that is rotated: the same without a norm
  RowSegments key_normed;      // columns [0, key_norm.columns)
  std::int64_t num_key_heads;  // 0: only q
  std::int64_t key_head_stride;
  std::int64_t key_width;
  RopeNorm q_norm;
  RopeNorm key_norm;
  double epsilon;
};

struct RopeKernels {
  std::int64_t (*scratch_bytes)(const RopeJob& job);
  void (*rotate)(const RopeJob& job, const TokenPlace* places, std::int64_t num_places,
                 std::byte* scratch);
};

const RopeKernels& rope_kernels(TargetTag<Target::portable>);
const RopeKernels& rope_kernels(TargetTag<Target::avx2>);
const RopeKernels& rope_kernels(TargetTag<Target::avx512>);
const RopeKernels& rope_kernels(TargetTag<Target::avx512_vnni>);
const RopeKernels& rope_kernels(TargetTag<Target::amx>);
const RopeKernels& rope_kernels(TargetTag<Target::neon>);
const RopeKernels& rope_kernels(TargetTag<Target::neon_bf16>);

inline const RopeKernels& rope_kernels(Target target) {
  return on_target(target, [](auto tag) -> const RopeKernels& { return rope_kernels(tag); });
}

}  // namespace quire::cpu
