// SPDX-License-Identifier: Apache-2.0
// Where one new token stands: plain data, for kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cpu {

struct TokenPlace {
  std::int64_t token;     // row of x, q and out
  std::int64_t sequence;  // row of the page table
  std::int64_t position;  // absolute: cache_length + index among the sequence's new tokens
  std::byte* row;         // head 0's cache row; null: its page is unassigned
  std::byte* plane;       // head 0's first scale in the scales tensor; null: none, or unassigned
};

}  // namespace quire::cpu
