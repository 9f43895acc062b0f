// SPDX-License-Identifier: Apache-2.0
// What this machine's processor can do at best, measured on the spot: the figures that a benchmark
// takes its shares of.
#pragma once

#include <string>
#include <string_view>

#include "quire/export.h"

namespace quire {

struct CpuCeiling {
  std::string target{};      // "amx": whose instructions were measured
  int num_threads = 0;       // that worked at once
  double read_gbs = 0.0;     // reading memory that no cache holds
  double f32_gflops = 0.0;   // the target's product instruction alone, on registers,
  double bf16_gflops = 0.0;  // for each of the three kinds of numbers
  double int8_gops = 0.0;
};

// Some tenths of a second. 0 threads: all cores; target empty: the best one that runs here. Throws
// Error for a target that does not.
QUIRE_API CpuCeiling measure_cpu_ceiling(int num_threads = 0, std::string_view target = {});

}  // namespace quire
