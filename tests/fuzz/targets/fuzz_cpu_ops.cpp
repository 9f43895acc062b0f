// SPDX-License-Identifier: Apache-2.0
// Small problems of every op on every target of this machine against the oracle. The input's first byte chooses the op,
// the rest is drawn from.
#include <cstdio>
#include <cstdlib>

#include "fuzz/problems/random_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::string> ops = quire::tools::known_ops();
  static const std::vector<std::string> targets = quire::test::targets_of_this_machine();
  if (size == 0) return 0;
  quire::test::Draw draw(std::span(data + 1, size - 1));
  const std::string& op = ops[data[0] % ops.size()];
  const quire::test::RandomProblem problem = quire::test::draw_problem(op, draw);
  for (const auto& [target, verdict] : quire::test::check_random(problem, targets)) {
    if (verdict.outcome != quire::tools::Outcome::failed) continue;
    std::fprintf(stderr, "FAILED %s %s: %s\n    %s\n", op.c_str(), target.c_str(),
                 verdict.faults.front().c_str(), problem.describe().c_str());
    std::abort();
  }
  return 0;
}
