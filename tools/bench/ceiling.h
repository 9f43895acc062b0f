// SPDX-License-Identifier: Apache-2.0
// What this machine can do at best, measured in this process: memory read and fp32 multiply-add on
// all cores.
#pragma once

namespace quire::tools {

struct Ceiling {
  double read_gbs = 0.0;
  double fma_gflops = 0.0;

  // Seconds that nobody on this machine can beat.
  double floor_seconds(double flops, double bytes) const;
};

// About 0.3 s. `threads` ≥ 1.
Ceiling measure_ceiling(int threads);

// The better of two: other work on the machine only ever slows a probe down.
Ceiling best_of(const Ceiling& left, const Ceiling& right);

}  // namespace quire::tools
