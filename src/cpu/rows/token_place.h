// SPDX-License-Identifier: Apache-2.0
// Where one new token stands in its operand: plain data, for kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cpu {

struct TokenPlace {
  std::int64_t token;  // row of x, q and out
  std::int64_t sequence;
  std::int64_t position;  // absolute: cache_length + index among the sequence's new tokens
  std::byte* row;         // head 0's row; null: it has no memory
  std::byte* plane;       // head 0's first scale in the scales tensor; null: it has none
};

}  // namespace quire::cpu
