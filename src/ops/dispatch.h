// SPDX-License-Identifier: Apache-2.0
// The kernels of an op, best first: cuda, then cpu, then the reference. One list per op is what `supports`, `plan`,
// `prepare` and the op itself read, so that none of them can promise what another does not do.
#pragma once

#include <algorithm>
#include <mutex>
#include <string_view>

#include "core/kernel.h"
#include "cpu/runtime/float_environment.h"
#include "cpu/runtime/target.h"
#include "ops/device_check.h"
#include "ops/plan_log.h"
#include "quire/device.h"
#include "quire/ops/problem.h"

namespace quire::ops {

// Thread counts out of range and the like.
void check_context(std::string_view op, const Context& context);
// The context brings the scratch that the plan asks for.
void check_workspace(const Plan& plan, const Context& context);
// It brings an allocator instead, and the context with what that one gives.
bool wants_allocation(const Plan& plan, const Context& context);
Context with_workspace(const Plan& plan, const Context& context);
[[noreturn]] void throw_unsupported(const Plan& plan);
[[noreturn]] void throw_other_problem(std::string_view op);

inline std::string refuse_off_host(Device device) {
  return device.kind == DeviceKind::cpu ? "" : "tensors are on " + to_string(device);
}

// What an op's list is made of.
template <typename Problem, typename Args> struct Backends {
  Candidates<Problem, Args> cuda;
  // Beyond what every CPU kernel refuses: other devices, targets that do not run here.
  std::function<std::string(const Problem&, cpu::Target)> refuse_on_cpu = nullptr;
  std::function<void(const Args&, const Context&, cpu::Target)> run_on_cpu;
  std::function<void(const Args&)> run_reference;
  std::function<std::string(const Problem&)> refuse_reference = nullptr;
};

template <typename Problem, typename Args>
Candidates<Problem, Args> list_candidates(const std::string& op, Backends<Problem, Args> from) {
  using cpu::Target;
  Candidates<Problem, Args> list = std::move(from.cuda);
  for (const Target target : {Target::amx, Target::avx512, Target::avx512_vnni, Target::avx2,
                              Target::neon_bf16, Target::neon, Target::portable}) {
    const auto run = [run = from.run_on_cpu, target](const Args& args, const Context& context) {
      run(args, context, target);
    };
    list.push_back({.kernel = "cpu/" + std::string(cpu::name(target)) + "/" + op,
                    .takes = "any valid problem on a cpu with the target's instructions",
                    .refuse =
                        [refuse = from.refuse_on_cpu, target](const Problem& problem) {
                          std::string reason = refuse_off_host(problem.device);
                          if (reason.empty()) reason = cpu::why_not(target);
                          return reason.empty() && refuse ? refuse(problem, target) : reason;
                        },
                    .prepare = always<Problem, Args>(run)});
  }
  const auto run = [run = from.run_reference](const Args& args, const Context&) { run(args); };
  list.push_back({.kernel = "reference/" + op,
                  .takes = "any valid problem on cpu",
                  .refuse =
                      [refuse = from.refuse_reference](const Problem& problem) {
                        std::string reason = refuse ? refuse(problem) : "";
                        return reason.empty() ? refuse_off_host(problem.device) : reason;
                      },
                  .prepare = always<Problem, Args>(run)});
  return list;
}

// The last problems of an op and what was prepared for them, newest first. An engine's layers ask for the same few again
// and again; a search through kMost problems costs less than planning one.
template <typename Problem> class PlanMemory {
 public:
  static constexpr std::size_t kMost = 32;
  using StatePtr = std::shared_ptr<const typename Prepared<Problem>::State>;

  // What else a plan depends on.
  struct Key {
    std::string_view kernel;      // Context::kernel
    std::string_view cpu_target;  // QUIRE_CPU_TARGET
  };

  // Null: not remembered.
  StatePtr find(const Problem& problem, const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
      return entry.state->problem == problem && entry.kernel == key.kernel &&
             entry.cpu_target == key.cpu_target;
    });
    if (found == entries_.end()) return nullptr;
    std::rotate(entries_.begin(), found, found + 1);
    return entries_.front().state;
  }

  void remember(const Key& key, const StatePtr& state) {
    const std::lock_guard lock(mutex_);
    if (entries_.size() == kMost) entries_.pop_back();
    entries_.insert(entries_.begin(), {.kernel = std::string(key.kernel),
                                       .cpu_target = std::string(key.cpu_target),
                                       .state = state});
  }

  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    std::string kernel;
    std::string cpu_target;
    StatePtr state;
  };

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

// A plan for longer sequences serves shorter ones: kernels take these sizes as bounds, since on a GPU only bounds are
// known.
inline bool is_within(const RaggedSize& given, const RaggedSize& bound) {
  const auto below = [](std::int64_t size, std::int64_t most) {
    return most < 0 || (size >= 0 && size <= most);
  };
  return below(given.max_new_tokens, bound.max_new_tokens) &&
         below(given.max_keys, bound.max_keys) && below(given.total_keys, bound.total_keys);
}

// Rows may be aligned better than planned. On a CPU the plan does not depend on it.
inline void relax_alignment(Device device, std::int64_t& given, std::int64_t prepared) {
  if (device.kind == DeviceKind::cpu || given >= prepared) given = prepared;
}

template <typename Problem> bool fits(Problem given, const Problem& prepared) {
  if constexpr (requires { given.alignment; }) {
    relax_alignment(given.device, given.alignment, prepared.alignment);
  }
  if constexpr (requires { given.cache_alignment; }) {
    relax_alignment(given.device, given.cache_alignment, prepared.cache_alignment);
  }
  if constexpr (requires { given.ragged.max_keys; }) {
    if (!is_within(given.ragged, prepared.ragged)) return false;
    given.ragged.max_new_tokens = prepared.ragged.max_new_tokens;
    given.ragged.max_keys = prepared.ragged.max_keys;
    given.ragged.total_keys = prepared.ragged.total_keys;
  }
  return given == prepared;
}

template <typename Problem, typename Args> class Dispatch {
 public:
  using State = typename Prepared<Problem>::State;

  Dispatch(const std::string& op, Backends<Problem, Args> backends)
      : candidates_(list_candidates(op, std::move(backends))) {}

  // `op`: what errors and plans call it.
  Prepared<Problem> prepare(std::string_view op, const Problem& problem,
                            const Context& context) const {
    check_context(op, context);
    const typename PlanMemory<Problem>::Key key{.kernel = context.kernel,
                                                .cpu_target = cpu::forced_target_name()};
    std::shared_ptr<const State> state = memory_.find(problem, key);
    if (state == nullptr) {
      state = std::make_shared<const State>(choose(op, problem, context));
      memory_.remember(key, state);
    }
    return Prepared<Problem>(std::move(state));
  }

  // Of arguments that are known to be valid, and of the prepared problem.
  void run(const Prepared<Problem>& prepared, const Args& args, const Context& context) const {
    const Plan& plan = prepared.plan();
    log_plan(plan);
    if (!plan.supported()) throw_unsupported(plan);
    check_device_values(plan.op, args, context);
    const auto& kernel = static_cast<const Kernel<Args>&>(*prepared.state().kernel);
    const cpu::FloatEnvironment environment;
    if (wants_allocation(plan, context)) return kernel.run(args, with_workspace(plan, context));
    check_workspace(plan, context);
    kernel.run(args, context);
  }

  // Of any arguments: they are held against the prepared problem first.
  void run_checked(const Prepared<Problem>& prepared, const Problem& given, const Args& args,
                   const Context& context) const {
    check_context(prepared.plan().op, context);
    if (!fits(given, prepared.problem())) throw_other_problem(prepared.plan().op);
    run(prepared, args, context);
  }

 private:
  // A pure function: the first candidate that takes the problem, with the refusals of those before it.
  State choose(std::string_view op, const Problem& problem, const Context& context) const {
    State state{.problem = problem, .plan = {}, .kernel = nullptr};
    Plan& plan = state.plan;
    plan.op = op;
    for (const Candidate<Problem, Args>& candidate : candidates_) {
      const bool is_asked_for = candidate.kernel.starts_with(context.kernel);
      std::string reason =
          is_asked_for ? candidate.refuse(problem) : "context.kernel is '" + context.kernel + "'";
      if (reason.empty()) {
        plan.kernel = candidate.kernel;
        KernelPtr<Args> kernel = candidate.prepare(problem);
        plan.workspace_bytes = kernel->workspace_bytes();
        plan.choices = kernel->choices();
        state.kernel = std::move(kernel);
        return state;
      }
      plan.refusals.push_back({.kernel = candidate.kernel, .reason = std::move(reason)});
    }
    // The last candidate is the least demanding one.
    plan.nearest = candidates_.back().kernel + " takes " + candidates_.back().takes;
    return state;
  }

  Candidates<Problem, Args> candidates_;
  mutable PlanMemory<Problem> memory_;
};

}  // namespace quire::ops
