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

// What this thread keeps, for tests.
std::int64_t thread_scratch_bytes();

}  // namespace quire::cpu
