// SPDX-License-Identifier: Apache-2.0
// A mask as kernels read it: Mask's nodes in their own order, which is postfix, by value in the
// launch parameters.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/common/mask/visible_range.h"
#include "quire/mask.h"

namespace quire::cuda {

struct TreeBits {
  const std::uint8_t* data = nullptr;  // [tokens, columns]
  std::int64_t stride = 0;
  std::int64_t columns = 0;
};

// One storage for what the kinds bring: launch parameters of all steps stay below 2 KiB.
struct MaskStep {
  MaskStep() : size(0) {}

  MaskKind kind = MaskKind::full;
  union {
    std::int64_t size;         // sliding_window, chunked
    TreeBits tree;             // tree
    TokenIntervals intervals;  // key_intervals
  };
};
static_assert(sizeof(MaskStep) == 40);

struct MaskProgram {
  static constexpr int kMaxSteps = 47;  // 23 joins
  MaskStep steps[kMaxSteps];
  std::int32_t num_steps = 0;
};

// Empty, or why kernels do not take a mask that describes itself so: too many joins.
std::string refuse_mask(const MaskSummary& mask);
MaskProgram mask_program(const Mask& mask);

}  // namespace quire::cuda
