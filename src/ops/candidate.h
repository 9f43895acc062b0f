// SPDX-License-Identifier: Apache-2.0
// The kernels of an op, best first: hopper, then cpu, then the reference. One list per op is what
// `supports`, `plan` and the op itself read, so that none of them can promise what another does not
// do.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cpu/runtime/float_environment.h"
#include "ops/device_check.h"
#include "ops/plan_log.h"
#include "quire/context.h"
#include "quire/device.h"
#include "quire/error.h"
#include "quire/plan.h"

namespace quire::ops {

using Choices = std::vector<std::pair<std::string, std::string>>;  // ("tile_q", "128"), …

template <typename Problem, typename Args> struct Candidate {
  std::string_view kernel;  // "reference/flash_attention"
  std::string_view takes;   // in words: "any valid problem on cpu"
  // Empty, or why this kernel does not take the problem.
  std::string (*refuse)(const Problem& problem);
  void (*run)(const Args& args, const Context& context);
  // Scratch that `run` must find in the context; null: none.
  std::int64_t (*workspace_bytes)(const Problem& problem) = nullptr;
  // What the kernel would decide; null: there is nothing to decide.
  Choices (*choices)(const Problem& problem) = nullptr;
};

template <typename Problem, typename Args>
using CandidateList = std::span<const Candidate<Problem, Args>>;

// The oracle's rule for every op: it takes whatever is valid and on the host.
inline constexpr std::string_view kReferenceTakes = "any valid problem on cpu";
inline constexpr std::string_view kHopperTakes =
    "any valid problem on a GPU of compute capability 9.0";

inline std::string refuse_off_host(Device device) {
  return device.kind == DeviceKind::cpu ? "" : "tensors are on " + to_string(device);
}

// Thread counts out of range and the like.
void check_context(std::string_view op, const Context& context);

// A pure function: the first candidate that takes the problem, with the refusals of those before
// it.
template <typename Problem, typename Args>
Plan choose(std::string_view op, CandidateList<Problem, Args> candidates, const Problem& problem,
            const Context& context) {
  check_context(op, context);
  Plan plan;
  plan.op = op;
  for (const Candidate<Problem, Args>& candidate : candidates) {
    const bool is_asked_for = candidate.kernel.starts_with(context.kernel);
    std::string reason = is_asked_for ? candidate.refuse(problem)
                                      : fmt::format("context.kernel is '{}'", context.kernel);
    if (reason.empty()) {
      plan.kernel = candidate.kernel;
      if (candidate.workspace_bytes) plan.workspace_bytes = candidate.workspace_bytes(problem);
      if (candidate.choices) plan.choices = candidate.choices(problem);
      return plan;
    }
    plan.refusals.push_back({.kernel = std::string(candidate.kernel), .reason = std::move(reason)});
  }
  // The last candidate is the least demanding one.
  if (!candidates.empty()) {
    plan.nearest = fmt::format("{} takes {}", candidates.back().kernel, candidates.back().takes);
  }
  return plan;
}

[[noreturn]] void throw_unsupported(const Plan& plan);
// The context brings the scratch that the plan asks for.
void check_workspace(const Plan& plan, const Context& context);

template <typename Problem, typename Args>
void run_planned(CandidateList<Problem, Args> candidates, const Plan& plan, const Args& args,
                 const Context& context) {
  log_plan(plan);
  for (const Candidate<Problem, Args>& candidate : candidates) {
    if (candidate.kernel != plan.kernel) continue;
    check_workspace(plan, context);
    check_device_values(plan.op, args, context);
    const cpu::FloatEnvironment environment;
    return candidate.run(args, context);
  }
  throw_unsupported(plan);
}

}  // namespace quire::ops
