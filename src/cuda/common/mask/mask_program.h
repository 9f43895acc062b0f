// SPDX-License-Identifier: Apache-2.0
// A mask as kernels read it: Mask's nodes in their own order, which is postfix, by value in the
// launch parameters.
#pragma once

#include <cstdint>
#include <string>

#include "quire/mask.h"

namespace quire::cuda {

struct MaskStep {
  MaskKind kind = MaskKind::full;
  std::int64_t size = 0;               // sliding_window, chunked
  const std::uint8_t* bits = nullptr;  // tree: [tokens, bit_columns]
  std::int64_t bits_stride = 0;
  std::int64_t bit_columns = 0;
};

struct MaskProgram {
  static constexpr int kMaxSteps = 47;  // 23 joins
  MaskStep steps[kMaxSteps];
  std::int32_t num_steps = 0;
};

// Empty, or why kernels do not take a mask that describes itself so: too many joins.
std::string refuse_mask(const MaskSummary& mask);
MaskProgram mask_program(const Mask& mask);

}  // namespace quire::cuda
