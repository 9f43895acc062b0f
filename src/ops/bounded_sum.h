// SPDX-License-Identifier: Apache-2.0
// Whether a sum of bounded multiples can be a given number: the question behind every overlap of strided
// views.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace quire::ops {

// coefficient · x with 0 ≤ x ≤ bound.
struct BoundedTerm {
  std::int64_t coefficient;  // at least 0
  std::int64_t bound;        // at least 0
};

// Whether some x give Σ coefficient · x = target. The largest sum is below 2^62. Strides that nest, as
// those of slices and transposes do, are decided in a few steps; nothing where some thousands of steps
// have not settled it.
std::optional<bool> can_sum_to(std::vector<BoundedTerm> terms, std::int64_t target);

}  // namespace quire::ops
