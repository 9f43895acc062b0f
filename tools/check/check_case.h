// SPDX-License-Identifier: Apache-2.0
// One case, checked: the op on the layout the case asks for against the oracle on the same problem
// without paging.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quire/context.h"
#include "tools/case/case.h"
#include "tools/device/runner.h"

namespace quire::tools {

enum class Outcome : std::uint8_t { passed, failed, skipped };

struct Verdict {
  Outcome outcome = Outcome::passed;
  std::string kernel{};               // "reference/flash_attention"
  double max_error = 0.0;             // against the oracle, over outputs and stored rows
  std::vector<std::string> faults{};  // of a failure; of a skip, why
};

struct CheckMode {
  Context context{};
  std::string device = "cpu";
  int repeats = 1;  // runs after the first, which must leave the same bytes
};

// Runs everything: bits or tolerance, stray writes, repeated runs (on a GPU also captured and
// replayed), empty rows, the op's own property.
Verdict check_case(const Case& subject, const CheckMode& mode);

// The same for a problem and its twins that are built already; tests put a saboteur in
// `subject.run`.
struct CheckProblem {
  Built subject;
  Built exact;
  Built naive;
  // Another twin, for a problem that fails without; draw 0 has the same numbers.
  std::function<Built(std::uint64_t draw)> build_twin;
};
Verdict check_problem(CheckProblem& problem, const Context& context);
Verdict check_problem(CheckProblem& problem, Runner& runner, const CheckMode& mode);

}  // namespace quire::tools
