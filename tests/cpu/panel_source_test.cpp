// SPDX-License-Identifier: Apache-2.0
// Packed numbers as B panels of an engine of the deepest step, 32 k, which only AMX has: the panels of a weight whose
// K ends inside a step. Compiled for the portable target's instructions, in a namespace of its own.
#define QUIRE_CPU_TARGET panel_source_test

#include "cpu/simd/panel_source.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "cpu/fused_qkv_matmul/operands.h"
#include "cpu/projection_weight.h"
#include "cpu/runtime/scratch.h"

namespace quire::cpu::panel_source_test {
namespace {

// What PanelSource has to know of an engine; panels are those of the portable target.
struct DeepEngine {
  using Element = std::uint16_t;
  static constexpr int kCols = 8;
  static constexpr int kDepth = 32;
  // Of plain weights: not called.
  static void pack_b_columns(const Element* const*, int, std::int64_t, Element*) {}
};

constexpr std::int64_t kRows = 20;

// [rows][padded depth] of the panels, from their order of pairs.
std::vector<double> numbers_of(const Panels<std::uint16_t>& panels, std::int64_t padded) {
  std::vector<double> numbers;
  for (std::int64_t n = 0; n < kRows; ++n) {
    const std::uint16_t* panel = panels.numbers + n / DeepEngine::kCols * panels.stride;
    for (std::int64_t k = 0; k < padded; ++k) {
      const std::int64_t pair = k / 2 * DeepEngine::kCols + n % DeepEngine::kCols;
      numbers.push_back(load_element(panel + 2 * pair + k % 2, DType::bf16, 0));
    }
  }
  return numbers;
}

std::vector<double> wanted_of(const Weight& weight, std::int64_t padded) {
  std::vector<double> numbers;
  for (std::int64_t n = 0; n < kRows; ++n) {
    for (std::int64_t k = 0; k < padded; ++k) {
      numbers.push_back(k < weight.columns() ? weight.data.load({n, k}) : 0.0);
    }
  }
  return numbers;
}

TEST(PanelSource, FillsTheLastStepOfAnEngine) {
  const bool was_poisoned = is_scratch_poisoned();
  poison_scratch(true);
  Context context;
  context.kernel = "cpu/portable/";
  for (const WeightKind& kind : kWeightKinds) {
    if (kind.format != WeightFormat::fp8) continue;
    for (const std::int64_t depth : {1, 8, 9, 24, 25, 31, 32, 33, 40, 56, 64, 130, 152}) {
      ProjectionWeight weight(kind, kRows, depth);
      MatmulJob job{};
      job.weight = weight_view(weight.packed(context));
      job.tokens = 1;
      job.depth_block = 512;
      Carver counter(nullptr);
      const std::int64_t panels = job.weight.packed.panels;
      const PanelSource<DeepEngine> counted(job, panels, counter);
      std::vector<std::byte> scratch(static_cast<std::size_t>(counter.used()));
      Carver carver(scratch.data());
      PanelSource<DeepEngine> source(job, panels, carver);
      const std::int64_t padded = round_up_to(depth, DeepEngine::kDepth);
      EXPECT_EQ(numbers_of(source.load(0, panels, 0, depth), padded),
                wanted_of(weight.plain, padded))
          << kind.name << ", K = " << depth;
    }
  }
  poison_scratch(was_poisoned);
}

}  // namespace
}  // namespace quire::cpu::panel_source_test
