// SPDX-License-Identifier: Apache-2.0
#include "tools/info/info_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/device_choice.h"
#include "tools/info/machine.h"
#include "tools/info/support_table.h"

namespace quire::tools {
namespace {

void print_machine() {
  const Machine machine = detect_machine();
  fmt::print("quire      {} ({}, commit {})\n", QUIRE_VERSION, compiler_name(), build_commit());
  fmt::print("cpu        {}\n", machine.describe());
  fmt::print("features   {}\n", fmt::join(machine.features, " "));
  fmt::print("memory     {:.1f} GiB\n",
             static_cast<double>(machine.memory_bytes) / (1024.0 * 1024.0 * 1024.0));
  fmt::print("gpu        {}\n",
             machine.gpus.empty() ? "none" : fmt::format("{}", fmt::join(machine.gpus, ", ")));
  fmt::print("backends   {}\n", QUIRE_BACKENDS);
}

void print_summary(const std::vector<SupportRow>& rows) {
  fmt::print("\n{:<22} {:<32} {}\n", "op", "kernel", "problems");
  for (const OpSupport& op : summarise(rows)) {
    int total = 0;
    for (const auto& [kernel, count] : op.problems_by_kernel) total += count;
    for (const auto& [kernel, count] : op.problems_by_kernel) {
      fmt::print("{:<22} {:<32} {} of {}\n", op.op, kernel.empty() ? "none" : kernel, count, total);
    }
    for (const std::string& refusal : op.refusals) fmt::print("{:<22}   {}\n", "", refusal);
  }
}

}  // namespace

int run_info(const InfoOptions& options) {
  require_device(options.device);
  print_machine();
  const std::vector<SupportRow> rows = ask_support(load_cases(options.folder), options.device);
  if (!options.support) {
    print_summary(rows);
    return 0;
  }
  fmt::print("\n");
  for (const SupportRow& row : rows) {
    fmt::print(
        "{:<22} {:<56} {}\n", row.op, row.problem,
        row.kernel.empty() ? fmt::format("none ({})", fmt::join(row.refusals, "; ")) : row.kernel);
  }
  return 0;
}

}  // namespace quire::tools
