// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/scratch.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

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

bool is_asked_for_by_environment() {
  const char* value = std::getenv("QUIRE_POISON_SCRATCH");
  return value != nullptr && std::string_view(value) == "1";
}

std::atomic<bool>& poison_switch() {
  static std::atomic<bool> is_on = is_asked_for_by_environment();
  return is_on;
}

}  // namespace

bool is_scratch_poisoned() {
  return poison_switch().load(std::memory_order_relaxed);
}

void poison_scratch(bool is_on) {
  poison_switch().store(is_on, std::memory_order_relaxed);
}

void poison(std::byte* block, std::int64_t bytes) {
  constexpr int kNan = 0xff;
  if (bytes > 0 && is_scratch_poisoned()) std::memset(block, kNan, static_cast<std::size_t>(bytes));
}

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
  poison(buffer.memory.get(), bytes);
  return buffer.memory.get();
}

}  // namespace quire::cpu
