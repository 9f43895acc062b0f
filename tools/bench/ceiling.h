// SPDX-License-Identifier: Apache-2.0
// What a machine can do at best: reading memory, and multiplying each kind of numbers.
#pragma once

#include <string>

#include "tools/case/case.h"

namespace quire::tools {

// Time that nobody on this machine can beat, and what stands in the way.
struct Floor {
  double seconds = 0.0;
  std::string what{};  // "read", "amx bf16"
};

struct Ceiling {
  std::string target{};  // whose product instructions: "amx"
  double read_gbs = 0.0;
  double f32_gflops = 0.0;
  double bf16_gflops = 0.0;
  double int8_gops = 0.0;

  double gflops(Products products) const;
  Floor floor(double flops, double bytes, Products products) const;
};

// "amx" of "cpu/amx/flash_attention"; empty for a kernel of no target, such as the reference.
std::string target_of(const std::string& kernel);

// That of a target, or of the best one if it is empty. About 0.2 s.
Ceiling measure_ceiling(const std::string& target, int threads);

// The better of two: other work on the machine only ever slows a probe down.
Ceiling best_of(const Ceiling& left, const Ceiling& right);

}  // namespace quire::tools
