// SPDX-License-Identifier: Apache-2.0
// Numbers do not depend on how the calling program has set its floating-point unit: ops round to nearest,
// keep subnormals and raise no traps, on the caller's thread and on every worker.
#pragma once

#include <cstdint>

namespace quire::cpu {

// The modes of this thread: rounding, flushing of subnormals, traps. MXCSR without its sticky flags on
// x86, FPCR on Arm, 0 elsewhere.
std::uint64_t float_modes();

// While it lives, this thread has the default modes; then those that it had before.
class FloatEnvironment {
 public:
  FloatEnvironment();
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::uint64_t before_;
};

}  // namespace quire::cpu
