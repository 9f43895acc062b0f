// SPDX-License-Identifier: Apache-2.0
// Arrays that are read in no order: from some megabytes on they stand in huge pages, where the system has them, and a look
// at one of a million entries does not wait for a translation of its address first.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace quire::pages {

template <typename T> struct HugePageAllocator {
  using value_type = T;
  static constexpr std::size_t kHugePage = std::size_t{1} << 21;

  HugePageAllocator() = default;
  template <typename U> explicit HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes < kHugePage) return static_cast<T*>(::operator new(bytes, alignment(bytes)));
    const std::size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* memory = ::operator new(whole, alignment(bytes));
    madvise(memory, whole, MADV_HUGEPAGE);  // a wish: refused, everything is as before
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) {
    ::operator delete(memory, alignment(count * sizeof(T)));
  }
  bool operator==(const HugePageAllocator&) const { return true; }

 private:
  static std::align_val_t alignment(std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    return std::align_val_t{bytes < kHugePage ? kLine : kHugePage};
  }
};

template <typename T> using LargeArray = std::vector<T, HugePageAllocator<T>>;

}  // namespace quire::pages
