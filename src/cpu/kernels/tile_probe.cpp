// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/tile_kernels.h"
#include "cpu/simd/convert_row.h"
#include "cpu/simd/tile_bf16.h"
#include "cpu/simd/tile_f32.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

template <typename Engine>
void multiply(const typename Engine::Element* a, int row_panels, const typename Engine::Element* b,
              int col_panels, std::int64_t depth, float* c, std::int64_t c_stride, bool add) {
  const typename Engine::Session session;
  Engine::multiply(a, row_panels, b, col_panels, depth, c, c_stride,
                   add ? Accumulate::add : Accumulate::overwrite);
}

template <typename Engine> constexpr TileEngineTable<typename Engine::Element> table_of() {
  return {.rows = Engine::kRows,
          .cols = Engine::kCols,
          .depth = Engine::kDepth,
          .pack_a = Engine::pack_a,
          .pack_a_f32 = Engine::pack_a_f32,
          .pack_b_columns = Engine::pack_b_columns,
          .pack_b_rows = Engine::pack_b_rows,
          .multiply = multiply<Engine>,
          .spin = Engine::spin};
}

constexpr TileKernels kTileKernels{.bf16 = table_of<Bf16Engine>(),
                                   .f32 = table_of<F32Engine>(),
                                   .widen_row = widen_row,
                                   .narrow_row = narrow_row};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const TileKernels& tile_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kTileKernels;
}

}  // namespace quire::cpu
