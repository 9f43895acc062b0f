// SPDX-License-Identifier: Apache-2.0
// Scratch memory for one call. Each calling thread keeps its largest buffer until it ends: a fresh
// allocation of some megabytes would cost more in page faults than a small op in arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cpu {

// At least `bytes` of memory on a 2 MiB border, valid until this thread's next call. Contents are
// whatever they were. Workers of parallel_for use the parts that the caller hands them.
std::byte* thread_scratch(std::int64_t bytes);

// Sizes of pieces of it, so that no two begin in one cache line.
inline constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t round_up_to_line(std::int64_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// What this thread keeps, for tests.
std::int64_t thread_scratch_bytes();

// Poisoned scratch, for tests and `quire check`: thread_scratch and every piece that a Carver hands out are filled with
// bytes of 0xFF, a NaN in each floating-point dtype and an index far out of range, so that an op which reads what it
// has not written gives a wrong result instead of a right one by luck. Off unless QUIRE_POISON_SCRATCH is 1 when the
// first op runs; poison_scratch changes it from then on.
bool is_scratch_poisoned();
void poison_scratch(bool is_on);
// Fills the block if scratch is poisoned.
void poison(std::byte* block, std::int64_t bytes);

}  // namespace quire::cpu
