// SPDX-License-Identifier: Apache-2.0
// `quire bench`: cases timed, as a table, as JSON lines, as a picture, and beside somebody else's
// numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/bench_row.h"
#include "tools/case/case.h"

namespace quire::tools {

struct BenchOptions {
  std::vector<std::string> cases{};  // empty: the model cases that fit
  std::string folder{};
  std::string device = "cpu";
  std::string target{};
  std::string json{};     // output file, row by row as they are measured
  std::string against{};  // JSON lines to compare with
  std::string plot{};     // output SVG
  std::string commit{};   // of the record; empty: as configured
  double seconds = 1.0;   // per case, at least three runs
  int threads = 0;        // 0: all cores
  bool host = false;      // the time of calls on the host, on a GPU, in place of kernels' times
};

// What a kernel is taken to reach, roughly and rather low; only for the decision what to leave out.
struct KernelSpeed {
  double flops = 0.0;  // per second
  double bytes = 0.0;
};

// Why a case is not timed within the budget of seconds, or nothing.
std::optional<std::string> reason_to_skip(const Case& candidate, const KernelSpeed& speed,
                                          double seconds, std::int64_t memory_bytes);

// Builds, warms up, and times until `seconds` have passed.
BenchRow time_case(const Case& timed, const Context& context, double seconds);

int run_bench(const BenchOptions& options);

}  // namespace quire::tools
