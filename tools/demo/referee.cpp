// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/referee.h"

namespace quire::tools::demo {

void Referee::require(std::string_view op, const Fault& fault) {
  ++num_conditions_;
  if (fault) report(op, *fault);
}

void Referee::report(std::string_view op, const std::string& fault) {
  disagreements_.push_back({.stack = stack_, .step = step_, .op = std::string(op), .where = fault});
}

}  // namespace quire::tools::demo
