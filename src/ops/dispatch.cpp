// SPDX-License-Identifier: Apache-2.0
#include "ops/dispatch.h"

#include <fmt/format.h>

#include "quire/error.h"
#include "quire/workspace.h"

namespace quire::ops {

void check_context(std::string_view op, const Context& context) {
  if (context.num_threads < 0 || context.num_threads > kMaxThreads) {
    throw Error(ErrorCode::invalid_value, std::string(op), "context.num_threads",
                fmt::format("from 0 (all cores) to {}", kMaxThreads),
                std::to_string(context.num_threads));
  }
  if (context.workspace_bytes < 0) {
    throw Error(ErrorCode::invalid_value, std::string(op), "context.workspace_bytes", "at least 0",
                std::to_string(context.workspace_bytes));
  }
}

void check_workspace(const Plan& plan, const Context& context) {
  const std::int64_t given = context.workspace == nullptr ? 0 : context.workspace_bytes;
  if (given < plan.workspace_bytes) {
    throw Error(ErrorCode::invalid_value, plan.op, "context.workspace",
                fmt::format("{} bytes for {}", plan.workspace_bytes, plan.kernel),
                fmt::format("{} bytes", given));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(context.workspace);
  if (plan.workspace_bytes > 0 && address % kWorkspaceAlignment != 0) {
    throw Error(ErrorCode::invalid_value, plan.op, "context.workspace",
                fmt::format("aligned to {} bytes", kWorkspaceAlignment),
                fmt::format("{}", context.workspace));
  }
}

bool wants_allocation(const Plan& plan, const Context& context) {
  return plan.workspace_bytes > 0 && context.workspace == nullptr &&
         context.workspace_allocator.allocate != nullptr;
}

Context with_workspace(const Plan& plan, const Context& context) {
  const WorkspaceAllocator& allocator = context.workspace_allocator;
  Context whole = context;
  whole.workspace = allocator.allocate(allocator.user, plan.workspace_bytes);
  whole.workspace_bytes = plan.workspace_bytes;
  check_workspace(plan, whole);
  return whole;
}

void throw_unsupported(const Plan& plan) {
  std::string refusals;
  for (const Refusal& refusal : plan.refusals) {
    if (!refusals.empty()) refusals += "; ";
    refusals += refusal.kernel + " refuses: " + refusal.reason;
  }
  throw Error(ErrorCode::unsupported, plan.op, "problem",
              fmt::format("one that a kernel takes ({})", plan.nearest), std::move(refusals));
}

void throw_other_problem(std::string_view op) {
  throw Error(ErrorCode::invalid_value, std::string(op), "arguments",
              "of the problem that was prepared", "those of another one");
}

}  // namespace quire::ops
