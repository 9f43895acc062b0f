// SPDX-License-Identifier: Apache-2.0
// One random problem, checked on every target as `quire check` checks a case (docs/numerics.md): drawn, built, edited, given
// gaps, run twice with other threads in another order, compared with the oracle, which works once for all targets.
#pragma once

#include <string>
#include <vector>

#include "fuzz/problems/draw.h"
#include "fuzz/problems/edits.h"
#include "tools/check/check_case.h"

namespace quire::test {

struct RandomProblem {
  nlohmann::json object;
  tools::Case parsed;
  Edits edits;
  bool has_gaps = false;
  Draw gap_draw;

  std::string describe() const;  // the case, its edits
};

// Throws tools::CaseError where the generator made what no case may be.
RandomProblem draw_problem(const std::string& op, Draw& draw);

struct TargetVerdict {
  std::string target;
  tools::Verdict verdict;
};

// A target is the beginning of a kernel's name: "cpu/neon", "cuda", "" for the best one.
std::vector<TargetVerdict> check_random(const RandomProblem& problem,
                                        const std::vector<std::string>& targets,
                                        const std::string& device = "cpu");

// "cpu/amx", …: those this machine runs, best first.
std::vector<std::string> targets_of_this_machine();

}  // namespace quire::test
