// SPDX-License-Identifier: Apache-2.0
// The matrix engines and converters of a target, behind function pointers: for tests and probes. Kernels use the
// engine itself (cpu/simd/tile.h has the contract).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/target_switch.h"
#include "quire/dtype.h"

namespace quire::cpu {

template <typename Element> struct TileEngineTable {
  int rows;
  int cols;
  int depth;
  void (*pack_a)(const Element* const* rows, int num_rows, std::int64_t depth, Element* panel);
  void (*pack_a_f32)(const float* rows, std::int64_t stride, int num_rows, std::int64_t depth,
                     Element* panel);
  void (*pack_b_columns)(const Element* const* columns, int num_columns, std::int64_t depth,
                         Element* panel);
  void (*pack_b_rows)(const Element* const* rows, std::int64_t depth, int num_columns,
                      Element* panel);
  // Opens a session; c = (add ? c : 0) + a · b.
  void (*multiply)(const Element* a, int row_panels, const Element* b, int col_panels,
                   std::int64_t depth, float* c, std::int64_t c_stride, bool add);
  double (*spin)(std::int64_t rounds);
};

struct TileKernels {
  TileEngineTable<std::uint16_t> bf16;
  TileEngineTable<float> f32;
  // count elements to and from f32 (cpu/simd/convert_row.h).
  void (*widen_row)(DType type, const std::byte* source, std::int64_t count, float* values);
  void (*narrow_row)(DType type, const float* values, std::int64_t count, std::byte* target);
};

const TileKernels& tile_kernels(TargetTag<Target::portable>);
const TileKernels& tile_kernels(TargetTag<Target::avx2>);
const TileKernels& tile_kernels(TargetTag<Target::avx512>);
const TileKernels& tile_kernels(TargetTag<Target::avx512_vnni>);
const TileKernels& tile_kernels(TargetTag<Target::amx>);
const TileKernels& tile_kernels(TargetTag<Target::neon>);
const TileKernels& tile_kernels(TargetTag<Target::neon_bf16>);

inline const TileKernels& tile_kernels(Target target) {
  return on_target(target, [](auto tag) -> const TileKernels& { return tile_kernels(tag); });
}

}  // namespace quire::cpu
