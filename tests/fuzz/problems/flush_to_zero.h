// SPDX-License-Identifier: Apache-2.0
// A caller's thread that flushes subnormal numbers to zero, as threads of audio or inference frameworks do. Ops must
// neither let it change a result nor leave it changed.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace quire::test {

class FlushToZero {
 public:
  FlushToZero() : before_(mode()) { set_mode(before_ | kFlush); }
  ~FlushToZero() { set_mode(before_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

  bool is_still_on() const { return (mode() & kFlush) == kFlush; }

 private:
#if defined(__x86_64__)
  static constexpr std::uint64_t kFlush = 0x8040;  // FTZ, DAZ
  static std::uint64_t mode() {
    return _mm_getcsr();
  }
  static void set_mode(std::uint64_t mode) {
    _mm_setcsr(static_cast<unsigned>(mode));
  }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kFlush = (1u << 24) | (1u << 19);  // FZ, FZ16
  static std::uint64_t mode() {
    std::uint64_t mode = 0;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(std::uint64_t mode) {
    asm volatile("msr fpcr, %0" : : "r"(mode));
  }
#else
  static constexpr std::uint64_t kFlush = 0;
  static std::uint64_t mode() {
    return 0;
  }
  static void set_mode(std::uint64_t) {}
#endif

  std::uint64_t before_;
};

}  // namespace quire::test
