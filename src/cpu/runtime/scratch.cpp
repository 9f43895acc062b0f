// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/scratch.h"

#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <new>

namespace quire::cpu {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{1} << 21;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

struct Buffer {
  std::unique_ptr<std::byte, Free> memory;
  std::int64_t bytes = 0;
};

Buffer& own_buffer() {
  thread_local Buffer buffer;
  return buffer;
}

}  // namespace

std::int64_t thread_scratch_bytes() {
  return own_buffer().bytes;
}

std::byte* thread_scratch(std::int64_t bytes) {
  Buffer& buffer = own_buffer();
  if (bytes > buffer.bytes) {
    const std::int64_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    buffer.memory.reset();
    buffer.bytes = 0;
    void* memory = std::aligned_alloc(kHugePage, static_cast<std::size_t>(rounded));
    if (memory == nullptr) throw std::bad_alloc();
    // A hint: packed panels are read with strides that small pages would spend a TLB entry each on.
    madvise(memory, static_cast<std::size_t>(rounded), MADV_HUGEPAGE);
    buffer.memory.reset(static_cast<std::byte*>(memory));
    buffer.bytes = rounded;
  }
  return buffer.memory.get();
}

}  // namespace quire::cpu
