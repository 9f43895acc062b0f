// SPDX-License-Identifier: Apache-2.0
// `quire check`: cases against the oracle, one line each, last line "N passed, M failed".
#pragma once

#include <string>
#include <vector>

namespace quire::tools {

struct CheckOptions {
  std::vector<std::string> cases{};  // empty: every tiny and edge case
  std::string folder{};              // of the case files
  std::string device = "cpu";
  std::string target{};  // kernel prefix
  int repeats = 1;       // runs after the first, each bit-identical to it
  bool all = false;      // model cases too
  bool list = false;     // only print what there is
};

// The exit code: 0, or 1 if a case failed or none was checked.
int run_check(const CheckOptions& options);

}  // namespace quire::tools
