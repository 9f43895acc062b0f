// SPDX-License-Identifier: Apache-2.0
// A kernel that lets the one after it start, and only then, late, writes what that one reads.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::test {

// GPU memory; the two ranges do not overlap.
struct ByteCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t bytes = 0;
};

inline constexpr std::size_t kMostLateCopies = 12;

// The old bytes of every `to` (the first 4 KiB) are in the L1 of all multiprocessors when the next kernel may start.
void launch_late_copies(const std::vector<ByteCopy>& copies, std::chrono::nanoseconds wait,
                        cudaStream_t stream);

}  // namespace quire::test
