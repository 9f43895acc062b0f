// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/float_environment.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire::cpu {
namespace {

#if defined(__x86_64__)
constexpr std::uint64_t kDefaultModes = 0x1f80;  // all exceptions masked
constexpr unsigned kStickyFlags = 0x3f;

// The flags stay what they are: what an op raised is seen, as it is without a guard.
void set_float_modes(std::uint64_t modes) {
  _mm_setcsr((_mm_getcsr() & kStickyFlags) | static_cast<unsigned>(modes));
}
#elif defined(__aarch64__)
constexpr std::uint64_t kDefaultModes = 0;

void set_float_modes(std::uint64_t modes) {
  __asm__ volatile("msr fpcr, %0" : : "r"(modes) : "memory");
}
#else
constexpr std::uint64_t kDefaultModes = 0;

void set_float_modes(std::uint64_t) {}
#endif

}  // namespace

std::uint64_t float_modes() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~kStickyFlags;
#elif defined(__aarch64__)
  std::uint64_t modes;
  __asm__ volatile("mrs %0, fpcr" : "=r"(modes) : : "memory");
  return modes;
#else
  return 0;
#endif
}

// Writing the register drains the pipeline: only where it changes something.
FloatEnvironment::FloatEnvironment() : before_(float_modes()) {
  if (before_ != kDefaultModes) set_float_modes(kDefaultModes);
}

FloatEnvironment::~FloatEnvironment() {
  if (before_ != kDefaultModes) set_float_modes(before_);
}

}  // namespace quire::cpu
