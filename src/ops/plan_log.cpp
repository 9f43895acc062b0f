// SPDX-License-Identifier: Apache-2.0
#include "ops/plan_log.h"

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

namespace quire::ops {
namespace {

// QUIRE_LOG is a list: "plan" or "plan,other".
bool names_plan(std::string_view list) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == "plan") return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

void log_plan(const Plan& plan) {
  const char* list = std::getenv("QUIRE_LOG");
  if (list == nullptr || !names_plan(list)) return;
  // One write for the line, so that the lines of several threads do not mix.
  std::cerr << "quire: " + plan.describe() + '\n' << std::flush;
}

}  // namespace quire::ops
