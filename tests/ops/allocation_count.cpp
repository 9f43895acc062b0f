// SPDX-License-Identifier: Apache-2.0
#include "ops/allocation_count.h"

#include <cstdlib>
#include <new>

namespace {

thread_local int count = 0;

}  // namespace

// Both forms that the plain operator delete takes back: sanitizers have their own.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new(std::size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace quire::test {

int num_allocations() {
  return count;
}

}  // namespace quire::test
