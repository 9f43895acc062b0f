// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/matmul.cpp offers, per target and engine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/fused_qkv_matmul/job.h"
#include "cpu/runtime/target_switch.h"

namespace quire::cpu {

struct MatmulEngine {
  int rows;  // tokens per panel
  int cols;
  int element_bytes;
  bool takes_numbers;  // the weight's bare numbers: scales are left to the sums
  std::int64_t (*packed_x_bytes)(const MatmulJob& job);
  // Scratch of either function below; columns: the widest range it will be given.
  std::int64_t (*scratch_bytes)(const MatmulJob& job, std::int64_t columns);
  // Packs the tokens of one row panel into job.packed_x.
  void (*pack_x)(const MatmulJob& job, std::int64_t panel, std::byte* scratch);
  // Columns [first, last) of Y, for all tokens, to their places. A range never cuts a cache row.
  void (*run)(const MatmulJob& job, std::int64_t first, std::int64_t last, std::byte* scratch);
};

struct MatmulKernels {
  MatmulEngine bf16;
  MatmulEngine f32;
  MatmulEngine int8;       // int8 activations, packed weights
  MatmulEngine int8_many;  // the same bits, from so many tokens on
  std::int64_t int8_many_from;
  // bf16 by bf16 without scales goes to f32 from so many tokens on, for the same bits: where bf16 is widened at every
  // product, that pays as soon as a panel of the weight has several of X.
  std::int64_t bf16_widened_from;
  // The same for the bare numbers of packed weights of 4 and 8 bits: an engine of its own.
  MatmulEngine widened;
  std::int64_t widened_from;
  WeightPacking packing;      // of numbers that are exact in bf16, and of f16
  WeightPacking packing_f32;  // of f32
  // One panel of a plain weight into the storage of a packed one.
  void (*pack_panel)(const WeightView& from, const PackedLayout& to, std::int64_t panel,
                     std::byte* storage);
};

const MatmulKernels& matmul_kernels(TargetTag<Target::portable>);
const MatmulKernels& matmul_kernels(TargetTag<Target::avx2>);
const MatmulKernels& matmul_kernels(TargetTag<Target::avx512>);
const MatmulKernels& matmul_kernels(TargetTag<Target::avx512_vnni>);
const MatmulKernels& matmul_kernels(TargetTag<Target::amx>);
const MatmulKernels& matmul_kernels(TargetTag<Target::neon>);
const MatmulKernels& matmul_kernels(TargetTag<Target::neon_bf16>);

inline const MatmulKernels& matmul_kernels(Target target) {
  return on_target(target, [](auto tag) -> const MatmulKernels& { return matmul_kernels(tag); });
}

}  // namespace quire::cpu
