// SPDX-License-Identifier: Apache-2.0
// Where a built problem runs. The checker works on the problem's host memory alone; a runner takes
// those bytes to the op and brings every one of them back, guards included.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quire/context.h"
#include "quire/plan.h"
#include "tools/case/built.h"

namespace quire::tools {

class Runner {
 public:
  virtual ~Runner() = default;

  virtual Plan supports(const Context& context) = 0;
  // Once, from the memory as it is. What happened outside the problem's memory (scratch overrun,
  // say) is told in `faults`.
  virtual void run(const Context& context, std::vector<std::string>& faults) = 0;
  // The same by another way, recorded before the memory had its contents; false: there is none.
  virtual bool replay(const Context& context, std::vector<std::string>& faults) = 0;
};

class HostRunner final : public Runner {
 public:
  explicit HostRunner(Built& built) : built_(built) {}

  Plan supports(const Context& context) override { return built_.supports(context); }
  void run(const Context& context, std::vector<std::string>&) override { built_.run(context); }
  bool replay(const Context&, std::vector<std::string>&) override { return false; }

 private:
  Built& built_;
};

}  // namespace quire::tools
