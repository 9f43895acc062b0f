// SPDX-License-Identifier: Apache-2.0
#include "cpu/fused_qkv_matmul/kernels.h"
#include "cpu/simd/matmul_block.h"
#include "cpu/simd/tile_bf16.h"
#include "cpu/simd/tile_f32.h"

namespace quire::cpu {
namespace QUIRE_CPU_TARGET {
namespace {

// Row `token` of X in the engine's element type and the weight's column order, in `row` unless it
// stands in X itself.
const std::uint16_t* input_row(const MatmulJob& job, std::int64_t token, std::uint16_t* row) {
  const InputView& x = job.x;
  const std::byte* source = x.data + token * x.row_stride;
  const auto* plain = reinterpret_cast<const std::uint16_t*>(source);
  if (x.dtype == DType::bf16 && x.perm == nullptr) return plain;
  for (std::int64_t k = 0; k < job.weight.columns; ++k) {
    const std::int64_t from = x.perm == nullptr ? k : x.perm[k];
    row[k] =
        x.dtype == DType::bf16 ? plain[from] : x.to_bf16[static_cast<std::uint8_t>(source[from])];
  }
  return row;
}

// The f32 engine multiplies values: scales of X are applied here. `wide` has room for one row more.
const float* input_row(const MatmulJob& job, std::int64_t token, float* row) {
  const InputView& x = job.x;
  const std::int64_t depth = job.weight.columns;
  const std::byte* source = x.data + token * x.row_stride;
  const auto* plain = reinterpret_cast<const float*>(source);
  if (x.dtype == DType::f32 && x.perm == nullptr) return plain;
  float* wide = x.perm == nullptr ? row : row + depth;
  widen_row(x.dtype, source, depth, wide);
  if (x.scale != nullptr) {
    for (std::int64_t k = 0; k < depth; ++k) wide[k] *= input_scale(x, token, k);
  }
  if (x.perm != nullptr) {
    for (std::int64_t k = 0; k < depth; ++k) row[k] = wide[x.perm[k]];
  }
  return row;
}

template <typename Engine>
void pack_x(const MatmulJob& job, std::int64_t panel, std::byte* scratch) {
  using Element = typename Engine::Element;
  const MatmulShape<Engine> shape(job);
  const std::int64_t first = panel * Engine::kRows;
  const std::int64_t block_start = first / job.token_block * job.token_block;
  auto* rows = reinterpret_cast<Element*>(scratch);  // [kRows + 1][depth]
  const Element* starts[Engine::kRows];
  int count = 0;
  for (; count < Engine::kRows && first + count < job.tokens; ++count) {
    starts[count] = input_row(job, first + count, rows + count * shape.depth);
  }
  auto* packed = reinterpret_cast<Element*>(job.packed_x);
  for (std::int64_t block = 0; block < shape.depth_blocks(); ++block) {
    const std::int64_t depth = shape.depth_of(block);
    const Element* slices[Engine::kRows];
    for (int i = 0; i < count; ++i) slices[i] = starts[i] + block * job.depth_block;
    Element* place = packed + shape.packed_offset(block_start, block) +
                     (panel - block_start / Engine::kRows) * a_panel_elements<Engine>(depth);
    Engine::pack_a(slices, count, depth, place);
  }
}

template <typename Engine> std::int64_t packed_x_bytes(const MatmulJob& job) {
  return MatmulShape<Engine>(job).packed_elements() *
         static_cast<std::int64_t>(sizeof(typename Engine::Element));
}

template <typename Engine> std::int64_t scratch_bytes(const MatmulJob& job, std::int64_t columns) {
  const std::int64_t rows = (Engine::kRows + 1) * job.weight.columns *
                            static_cast<std::int64_t>(sizeof(typename Engine::Element));
  const std::int64_t block = MatmulBlock<Engine>::scratch_bytes(job, columns);
  return rows > block ? rows : block;
}

template <typename Engine>
void run(const MatmulJob& job, std::int64_t first, std::int64_t last, std::byte* scratch) {
  MatmulBlock<Engine>(job, first, last, scratch).run();
}

template <typename Engine> constexpr MatmulEngine table_of() {
  return {.rows = Engine::kRows,
          .cols = Engine::kCols,
          .element_bytes = sizeof(typename Engine::Element),
          .packed_x_bytes = packed_x_bytes<Engine>,
          .scratch_bytes = scratch_bytes<Engine>,
          .pack_x = pack_x<Engine>,
          .run = run<Engine>};
}

constexpr MatmulKernels kMatmulKernels{.bf16 = table_of<Bf16Engine>(),
                                       .f32 = table_of<F32Engine>()};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const MatmulKernels& matmul_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kMatmulKernels;
}

}  // namespace quire::cpu
