// SPDX-License-Identifier: Apache-2.0
#include "tools/info/support_table.h"

#include <algorithm>

#include "tools/device_choice.h"

namespace quire::tools {

std::vector<SupportRow> ask_support(const std::vector<Case>& cases, const std::string& device) {
  std::vector<SupportRow> rows;
  for (const Case& asked : cases) {
    if (!asked.has_tag("tiny") && !asked.has_tag("edge")) continue;
    SupportRow row{.op = asked.op, .problem = asked.name, .kernel = "", .refusals = {}};
    try {
      Built built = asked.build(Layout::requested);
      const Plan plan = make_runner(device, built)->supports(Context{});
      row.kernel = plan.kernel;
      for (const Refusal& refusal : plan.refusals) {
        row.refusals.push_back(refusal.kernel + ": " + refusal.reason);
      }
    } catch (const std::exception& error) {
      row.refusals.emplace_back(error.what());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<OpSupport> summarise(const std::vector<SupportRow>& rows) {
  std::vector<OpSupport> ops;
  for (const SupportRow& row : rows) {
    auto found =
        std::find_if(ops.begin(), ops.end(), [&](const OpSupport& o) { return o.op == row.op; });
    if (found == ops.end()) {
      ops.push_back({.op = row.op, .problems_by_kernel = {}, .refusals = {}});
      found = std::prev(ops.end());
    }
    ++found->problems_by_kernel[row.kernel];
    found->refusals.insert(row.refusals.begin(), row.refusals.end());
  }
  return ops;
}

}  // namespace quire::tools
