// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <type_traits>

#include "cpu/fused_qkv_matmul/kernels.h"
#include "cpu/simd/int8_block.h"
#include "cpu/simd/matmul_block.h"
#include "cpu/simd/pack_panel.h"
#include "cpu/simd/tile_bf16.h"
#include "cpu/simd/tile_f32.h"

#if defined(__AMX_INT8__)
#include "cpu/simd/int8_tiles_amx.h"
#endif

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

// The sum of each group of a row: out[group · stride].
void sum_groups(const MatmulJob& job, const std::uint16_t* row, std::int64_t stride, float* out) {
  constexpr std::int64_t kChains = 4;
  const std::int64_t group = job.weight.group;  // whole fours
  for (std::int64_t k = 0; k < job.weight.columns; k += group, out += stride) {
    float sums[kChains] = {};
    for (std::int64_t i = 0; i < group; i += kChains) {
      for (std::int64_t j = 0; j < kChains; ++j) sums[j] += f32_from_bf16(row[k + i + j]);
    }
    *out = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
}

// Of the rows of a panel, zeros for those that are missing.
template <typename Engine>
void sum_rows(const MatmulJob& job, const MatmulShape<Engine>& shape, std::int64_t first,
              const std::uint16_t* const* rows, int count) {
  const std::int64_t stride = shape.row_sums_stride();
  float* sums = shape.row_sums(job.packed_x) + first;
  for (int i = 0; i < count; ++i) sum_groups(job, rows[i], stride, sums + i);
  for (std::int64_t group = 0; group < shape.sum_groups; ++group) {
    for (int i = count; i < shape.panel_rows; ++i) sums[group * stride + i] = 0.0f;
  }
}

// Scratch of load_rows.
template <typename Engine> struct RowScratch {
  static constexpr bool kTakesBf16 = kTakesNumbers<Engine>;
  static constexpr bool kTakesF32 = sizeof(typename Engine::Element) == 4;

  RowScratch(std::byte* scratch, std::int64_t depth) {
    Carver carver(scratch);
    if (kTakesBf16) bf16 = carver.take<std::uint16_t>(Engine::kRows * depth);
    if (kTakesF32) f32 = carver.take<float>((Engine::kRows + 1) * depth);
    bytes = carver.used();
  }

  std::uint16_t* bf16 = nullptr;  // [kRows][depth]
  float* f32 = nullptr;           // [kRows + 1][depth], a row more to put columns in order from
  std::int64_t bytes;
};

// Rows of X from token `first` on, at most a panel, and their sums where the weight has mins. How many there are.
template <typename Engine>
int load_rows(const MatmulJob& job, const MatmulShape<Engine>& shape, std::int64_t first,
              std::byte* scratch, const typename Engine::Element* (&rows)[Engine::kRows]) {
  using Scratch = RowScratch<Engine>;
  const Scratch space(scratch, shape.depth);
  const std::uint16_t* numbers[Engine::kRows];
  int count = 0;
  for (; count < Engine::kRows && first + count < job.tokens; ++count) {
    const std::int64_t place = count * shape.depth;
    if constexpr (Scratch::kTakesBf16) {
      numbers[count] = input_row(job, first + count, space.bf16 + place);
    }
    if constexpr (Scratch::kTakesBf16 && Scratch::kTakesF32) {
      widen_row(DType::bf16, reinterpret_cast<const std::byte*>(numbers[count]), shape.depth,
                space.f32 + place);
      rows[count] = space.f32 + place;
    } else if constexpr (Scratch::kTakesF32) {
      rows[count] = input_row(job, first + count, space.f32 + place);
    } else {
      rows[count] = numbers[count];
    }
  }
  if (shape.sum_groups != 0) sum_rows(job, shape, first, numbers, count);
  return count;
}

template <typename Engine>
void pack_x(const MatmulJob& job, std::int64_t panel, std::byte* scratch) {
  using Element = typename Engine::Element;
  const MatmulShape<Engine> shape(job);
  const std::int64_t first = panel * shape.panel_rows;
  const std::int64_t block_start = first / job.token_block * job.token_block;
  const Element* starts[Engine::kRows];
  const int count = load_rows(job, shape, first, scratch, starts);
  auto* packed = reinterpret_cast<Element*>(job.packed_x);
  for (std::int64_t block = 0; block < shape.depth_blocks(); ++block) {
    const std::int64_t depth = shape.depth_of(block);
    const Element* slices[Engine::kRows];
    for (int i = 0; i < count; ++i) slices[i] = starts[i] + block * job.depth_block;
    Element* place = packed + shape.packed_offset(block_start, block) +
                     (panel - block_start / shape.panel_rows) * shape.panel_elements(block);
    if (shape.is_narrow()) {
      Engine::pack_a_narrow(slices, count, shape.panel_rows, depth, place);
    } else {
      Engine::pack_a(slices, count, depth, place);
    }
  }
}

template <typename Engine> std::int64_t packed_x_bytes(const MatmulJob& job) {
  return MatmulShape<Engine>(job).packed_bytes();
}

template <typename Engine> std::int64_t scratch_bytes(const MatmulJob& job, std::int64_t columns) {
  const std::int64_t rows = RowScratch<Engine>(nullptr, job.weight.columns).bytes;
  const std::int64_t block = MatmulBlock<Engine>::scratch_bytes(job, columns);
  return rows > block ? rows : block;
}

template <typename Engine>
void run(const MatmulJob& job, std::int64_t first, std::int64_t last, std::byte* scratch) {
  Carver carver(scratch);
  MatmulBlock<Engine>(job, first, last, carver).run();
}

template <typename Engine> constexpr MatmulEngine table_of() {
  return {.rows = Engine::kRows,
          .cols = Engine::kCols,
          .element_bytes = sizeof(typename Engine::Element),
          .takes_numbers = kTakesNumbers<Engine>,
          .packed_x_bytes = packed_x_bytes<Engine>,
          .scratch_bytes = scratch_bytes<Engine>,
          .pack_x = pack_x<Engine>,
          .run = run<Engine>};
}

// Row `token` of X in f32 and the weight's column order, to be used up.
float* wide_row(const MatmulJob& job, std::int64_t token, std::byte* scratch) {
  const std::int64_t depth = job.weight.columns;
  float* values = Carver(scratch).take<float>(2 * depth);
  const float* row = input_row(job, token, values);
  if (row != values) __builtin_memcpy(values, row, static_cast<std::size_t>(depth) * sizeof(float));
  return values;
}

// The larger of a block's scratch and a wide row's.
std::int64_t with_wide_row(const MatmulJob& job, std::int64_t block) {
  Carver row(nullptr);
  row.take<float>(2 * job.weight.columns);
  return block > row.used() ? block : row.used();
}

// int8 activations of few tokens: a "panel" of X is one quantized row.
std::int64_t quantized_x_bytes(const MatmulJob& job) {
  return job.tokens * Int8Block::row_of(job).bytes();
}

std::int64_t int8_scratch_bytes(const MatmulJob& job, std::int64_t columns) {
  Carver carver(nullptr);
  const Int8Block block(job, 0, columns + kF32Lanes, carver);
  return with_wide_row(job, carver.used());
}

void quantize_x(const MatmulJob& job, std::int64_t token, std::byte* scratch) {
  const QuantizedRow shape = Int8Block::row_of(job);
  const std::int64_t group = job.weight.packed.group;
  const int zero = Int8Block::zero_of(job.weight);
  std::byte* row = job.packed_x + token * shape.bytes();
  quantize_row(group, job.weight.columns, wide_row(job, token, scratch),
               [&](std::int64_t g, const QuantizedGroup& quantized) {
                 order_codes(quantized.codes, group, shape.codes(row) + g * group);
                 shape.scales(row)[g] = quantized.scale;
                 shape.starts(row)[g] = -zero * quantized.sum;
                 if (job.weight.packed.has_mins) {
                   shape.scaled_sums(row)[g] = static_cast<float>(quantized.sum) * quantized.scale;
                 } else {
                   shape.sums(row)[g] = quantized.sum;
                 }
               });
}

void run_int8(const MatmulJob& job, std::int64_t first, std::int64_t last, std::byte* scratch) {
  Carver carver(scratch);
  Int8Block(job, first, last, carver).run();
}

constexpr MatmulEngine kInt8Rows{.rows = 1,
                                 .cols = kF32Lanes,
                                 .element_bytes = 1,
                                 .takes_numbers = false,
                                 .packed_x_bytes = quantized_x_bytes,
                                 .scratch_bytes = int8_scratch_bytes,
                                 .pack_x = quantize_x,
                                 .run = run_int8};

#if defined(__AMX_INT8__)
// function(tag) with the depth of the tiles' step.
template <typename Function> auto on_tile_step(const MatmulJob& job, Function&& function) {
  constexpr int kDeep = 64;
  return job.weight.packed.group % kDeep == 0 ? function(std::integral_constant<int, kDeep>())
                                              : function(std::integral_constant<int, kDeep / 2>());
}

std::int64_t tiled_x_bytes(const MatmulJob& job) {
  return on_tile_step(job, [&](auto step) { return TiledX<step.value>(job).bytes(); });
}

std::int64_t tiles_scratch_bytes(const MatmulJob& job, std::int64_t columns) {
  return on_tile_step(job, [&](auto step) {
    Carver carver(nullptr);
    const Int8Tiles<step.value> tiles(job, 0, columns + 2 * 16, carver);
    return with_wide_row(job, carver.used());
  });
}

void quantize_tiles(const MatmulJob& job, std::int64_t panel, std::byte* scratch) {
  on_tile_step(job, [&](auto step) {
    const TiledX<step.value> x(job);
    for (std::int64_t row = panel * x.kRows; row < (panel + 1) * x.kRows; ++row) {
      row < job.tokens ? x.quantize(row, wide_row(job, row, scratch)) : x.clear(row);
    }
  });
}

void run_tiles(const MatmulJob& job, std::int64_t first, std::int64_t last, std::byte* scratch) {
  on_tile_step(job, [&](auto step) {
    Carver carver(scratch);
    Int8Tiles<step.value>(job, first, last, carver).run();
  });
}

constexpr MatmulEngine kInt8Many{.rows = 16,
                                 .cols = 16,
                                 .element_bytes = 1,
                                 .takes_numbers = false,
                                 .packed_x_bytes = tiled_x_bytes,
                                 .scratch_bytes = tiles_scratch_bytes,
                                 .pack_x = quantize_tiles,
                                 .run = run_tiles};
constexpr std::int64_t kManyTokens = 5;
#else
constexpr MatmulEngine kInt8Many = kInt8Rows;
constexpr std::int64_t kManyTokens = 1;
#endif

using WidenedEngine = std::conditional_t<kWidensBf16, WidenedNumbers, Bf16Engine>;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

constexpr WeightPacking panels_of(int width) {
  return width == 32   ? WeightPacking::panels_32
         : width == 16 ? WeightPacking::panels_16
                       : WeightPacking::panels_8;
}

constexpr MatmulKernels kMatmulKernels{
    .bf16 = table_of<Bf16Engine>(),
    .f32 = table_of<F32Engine>(),
    .int8 = kInt8Rows,
    .int8_many = kInt8Many,
    .int8_many_from = kManyTokens,
    .bf16_widened_from = kWidensBf16 ? 64 : kNever,
    .widened = table_of<WidenedEngine>(),
    .widened_from = kWidensBf16 ? 16 : kNever,
    .packing = Bf16Engine::kDepth == 4 ? WeightPacking::quads_8 : panels_of(Bf16Engine::kCols),
    .packing_f32 = panels_of(F32Engine::kCols),
    .pack_panel = pack_panel};

}  // namespace
}  // namespace QUIRE_CPU_TARGET

const MatmulKernels& matmul_kernels(TargetTag<Target::QUIRE_CPU_TARGET>) {
  return QUIRE_CPU_TARGET::kMatmulKernels;
}

}  // namespace quire::cpu
