// SPDX-License-Identifier: Apache-2.0
// What src/cpu/kernels/rows_compress.cpp offers, per target. Strides are bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/row_plan.h"
#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"
#include "quire/row_layout.h"

namespace quire::cpu {

// A tensor whose rows of columns are dense.
struct RowsOf {
  const std::byte* data;
  DType dtype;
  std::int64_t stride;  // from row to row
};

struct CompressJob {
  std::int64_t width;
  std::int64_t series;
  std::int64_t ratio;
  std::int64_t rope;
  RowsOf kv;     // [tokens, series · width]
  RowsOf gate;   // the same
  RowsOf bias;   // [ratio, series · width]
  RowsOf gamma;  // [1, width]
  RowsOf freqs;  // [max_pos, rope]
  double epsilon;
  std::byte* state;  // [slots, state_rows, 2, series · width]
  DType state_dtype;
  std::int64_t state_rows;
  std::int64_t slot_stride;
  std::int64_t state_row_stride;
  std::int64_t part_stride;
  RowPlan plan;
};

// One row that is whole now, or the tokens of a sequence that are kept.
struct CompressItem {
  std::int64_t first_token;  // the sequence's row of kv
  std::int64_t cached;       // tokens before it
  std::int64_t slot;
  std::int64_t begin;  // of the row: its index; of tokens: [begin, end), positions
  std::int64_t end;
  RowAddress row;
};

struct CompressKernels {
  std::int64_t (*scratch_bytes)(const CompressJob& job);
  void (*pool)(const CompressJob& job, const CompressItem& item, std::byte* scratch);
  void (*keep)(const CompressJob& job, const CompressItem& item);
};

const CompressKernels& compress_kernels(TargetTag<Target::portable>);
const CompressKernels& compress_kernels(TargetTag<Target::avx2>);
const CompressKernels& compress_kernels(TargetTag<Target::avx512>);
const CompressKernels& compress_kernels(TargetTag<Target::avx512_vnni>);
const CompressKernels& compress_kernels(TargetTag<Target::amx>);
const CompressKernels& compress_kernels(TargetTag<Target::neon>);
const CompressKernels& compress_kernels(TargetTag<Target::neon_bf16>);

inline const CompressKernels& compress_kernels(Target target) {
  return on_target(target,
                   [](auto tag) -> const CompressKernels& { return compress_kernels(tag); });
}

}  // namespace quire::cpu
