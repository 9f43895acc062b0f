// SPDX-License-Identifier: Apache-2.0
// What the demo prints.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tools/demo/referee.h"
#include "tools/demo/server.h"
#include "tools/demo/stack.h"

namespace quire::tools::demo {

// A table of steps: one column per request, and what the pages did.
class Timeline {
 public:
  Timeline(std::ostream& out, int num_requests);

  void print_head() const;
  void print_step(const StepReport& report) const;

 private:
  std::ostream& out_;
  int num_requests_;
};

char request_letter(int request);  // 'A', 'B', …

void print_stack(std::ostream& out, const Stack& stack);
void print_summary(std::ostream& out, const Stack& stack, const Summary& summary, bool verbose);
void print_op_table(std::ostream& out, const Referee& referee);
// The disagreements, or that there are none; the last line is the verdict.
void print_verdict(std::ostream& out, const Referee& referee);

}  // namespace quire::tools::demo
