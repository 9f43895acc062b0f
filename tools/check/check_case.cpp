// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <future>
#include <optional>

#include "quire/error.h"
#include "tools/check/compare.h"
#include "tools/device_choice.h"

namespace quire::tools {
namespace {

void add(Verdict& verdict, const Comparison& comparison) {
  verdict.max_error = std::max(verdict.max_error, comparison.max_error);
  if (!comparison.fault.empty()) verdict.faults.push_back(comparison.fault);
}

bool is_reference(const std::string& kernel) {
  return kernel.starts_with("reference");
}

const Output* find_output(const Built& built, const std::string& name) {
  for (const Output& output : built.outputs) {
    if (output.name == name) return &output;
  }
  return nullptr;
}

// Tokens without a key give exactly 0 and, without a sink, LSE -inf.
void check_empty_tokens(const Built& built, Verdict& verdict) {
  if (built.empty_tokens.empty()) return;
  const TensorView out = find_output(built, "out")->view;
  const Output* lse = find_output(built, "lse");
  for (const std::int64_t token : built.empty_tokens) {
    for (std::int64_t head = 0; head < out.shape[1]; ++head) {
      for (std::int64_t column = 0; column < out.shape[2]; ++column) {
        const double value = out.load({token, head, column});
        if (value == 0.0) continue;
        verdict.faults.push_back(fmt::format("token {} sees no key, yet out[{}, {}, {}] is {}",
                                             token, token, head, column, value));
        return;
      }
      if (lse == nullptr || built.has_sinks) continue;
      const double value = lse->view.load({token, head});
      if (std::isinf(value) && value < 0.0) continue;
      verdict.faults.push_back(
          fmt::format("token {} sees no key, yet lse[{}, {}] is {}", token, token, head, value));
      return;
    }
  }
}

void compare_exactly(const Built& subject, const Built& exact, Verdict& verdict) {
  for (std::size_t i = 0; i < subject.outputs.size() && !subject.outputs_depend_on_layout; ++i) {
    add(verdict,
        compare_bits(subject.outputs[i].name, subject.outputs[i].view, exact.outputs[i].view));
  }
  for (std::size_t i = 0; i < subject.rows.size(); ++i) {
    add(verdict, compare_row_bits(subject.rows[i], exact.rows[i]));
  }
}

// What random rounding does to a problem's own numbers.
struct RandomErrors {
  std::vector<RandomSpread> outputs{};
  std::vector<double> rows{};
};

// What the oracle's rougher arithmetics left, or null.
struct RoughTwins {
  const Built* naive = nullptr;
  const Built* crossed = nullptr;
  std::vector<double> drawn_errors{};  // of each output; empty: other numbers were not drawn
  std::optional<RandomErrors> random{};
};

std::vector<Comparison> compare_closely(const CheckProblem& problem, const RoughTwins& twins) {
  const Built& subject = problem.subject;
  const auto output_of = [](const Built* twin, std::size_t i) -> std::optional<TensorView> {
    if (twin == nullptr) return std::nullopt;
    return twin->outputs[i].view;
  };
  const auto rows_of = [](const Built* twin, std::size_t i) -> std::optional<WrittenRows> {
    if (twin == nullptr) return std::nullopt;
    return twin->rows[i];
  };
  std::vector<Comparison> comparisons;
  for (std::size_t i = 0; i < subject.outputs.size() && !subject.outputs_depend_on_layout; ++i) {
    const Output& output = subject.outputs[i];
    // Positions chosen by fp32 scores: `verify` knows which choices are legitimate.
    const bool is_compared = is_float(output.view.dtype) && !subject.verifies_floats;
    if (!is_compared && subject.verify) continue;
    comparisons.push_back(
        compare_tolerance(output.name, output.view, problem.exact.outputs[i].view,
                          {.naive = output_of(twins.naive, i),
                           .crossed = output_of(twins.crossed, i),
                           .drawn_error = twins.drawn_errors.empty() ? 0.0 : twins.drawn_errors[i],
                           .random = twins.random ? twins.random->outputs[i] : RandomSpread{}}));
  }
  for (std::size_t i = 0; i < subject.rows.size(); ++i) {
    comparisons.push_back(compare_row_tolerance(subject.rows[i], problem.exact.rows[i],
                                                rows_of(twins.naive, i), rows_of(twins.crossed, i),
                                                twins.random ? twins.random->rows[i] : 0.0));
  }
  return comparisons;
}

// Few numbers of about the size of the largest: those that decide about the largest error.
bool has_few_numbers(const Output& exact) {
  constexpr std::int64_t kFew = 64;
  constexpr double kAbout = 1.0 / 16.0;
  return is_float(exact.view.dtype) && count_largest(exact.view, kAbout) < kFew;
}

// The largest naive error of each output of few numbers, when the problem has other ones; 0 for the rest.
std::vector<double> draw_errors(const CheckProblem& problem) {
  constexpr std::uint64_t kDraws = 7;
  std::vector<double> errors(problem.subject.outputs.size(), 0.0);
  if (std::ranges::none_of(problem.exact.outputs, has_few_numbers)) return errors;
  for (std::uint64_t draw = 1; draw <= kDraws; ++draw) {
    const Built exact = problem.build_twin(draw);
    const Built naive = problem.build_twin(draw);
    exact.reference(reference::Arithmetic::exact);
    naive.reference(reference::Arithmetic::naive);
    for (std::size_t i = 0; i < errors.size(); ++i) {
      if (!has_few_numbers(problem.exact.outputs[i])) continue;
      errors[i] = std::max(errors[i], max_error(naive.outputs[i].view, exact.outputs[i].view));
    }
  }
  return errors;
}

// The errors of evaluations of the problem's own numbers with random rounding, of seeds from `first` on. Such a rounding
// is off by 0.58 ulps in the mean square, one to nearest by 0.29: this error counts once where a naive one counts twice.
void widen(RandomErrors& errors, const CheckProblem& problem, int first, int count) {
  const Built& exact = problem.exact;
  errors.outputs.resize(exact.outputs.size());
  errors.rows.resize(exact.rows.size(), 0.0);
  // Side by side: of a large problem each takes seconds.
  std::vector<std::future<Built>> twins;
  for (int seed = first; seed < first + count; ++seed) {
    twins.push_back(std::async(std::launch::async, [&problem, seed] {
      Built twin = problem.build_twin(0);
      twin.reference(reference::Arithmetic::random(static_cast<std::uint8_t>(seed)));
      return twin;
    }));
  }
  for (std::future<Built>& evaluated : twins) {
    const Built twin = evaluated.get();
    for (std::size_t i = 0; i < exact.outputs.size(); ++i) {
      widen(errors.outputs[i], twin.outputs[i].view, exact.outputs[i].view);
    }
    for (std::size_t i = 0; i < exact.rows.size(); ++i) {
      errors.rows[i] = std::max(errors.rows[i], max_row_error(twin.rows[i], exact.rows[i]));
    }
  }
}

bool has_fault(std::span<const Comparison> comparisons) {
  return std::ranges::any_of(comparisons, [](const Comparison& one) { return !one.fault.empty(); });
}

// By the naive evaluation; where that is not enough by the crossed one too, then by naive ones of other numbers, and
// at last by ones with random rounding.
void judge(CheckProblem& problem, Verdict& verdict) {
  const bool has_naive = problem.naive.reference(reference::Arithmetic::naive);
  RoughTwins twins{.naive = has_naive ? &problem.naive : nullptr};
  std::vector<Comparison> comparisons = compare_closely(problem, twins);
  if (has_naive && has_fault(comparisons)) {
    const Built crossed = problem.build_twin(0);
    crossed.reference(reference::Arithmetic::crossed);
    twins.crossed = &crossed;
    comparisons = compare_closely(problem, twins);
    if (has_fault(comparisons)) {
      twins.drawn_errors = draw_errors(problem);
      comparisons = compare_closely(problem, twins);
    }
    // A right result that evaluations have with a chance of p is missed by N of them with p · (1 - p)^N ≤ 1 / (e · N).
    constexpr int kSeeds = 128;
    constexpr int kSeedsAtOnce = 8;
    for (int seed = 0; seed < kSeeds && has_fault(comparisons); seed += kSeedsAtOnce) {
      if (!twins.random) twins.random.emplace();
      widen(*twins.random, problem, seed, kSeedsAtOnce);
      comparisons = compare_closely(problem, twins);
    }
  }
  for (const Comparison& comparison : comparisons) add(verdict, comparison);
}

// Runs the op again and again from the same memory, once by replay where there is one; what every
// run leaves must be what the first left.
void run_repeatedly(Built& subject, Runner& runner, const CheckMode& mode, Verdict& verdict) {
  const Memory::Snapshot before = subject.memory.snapshot();
  runner.run(mode.context, verdict.faults);
  for (std::string& fault : subject.memory.stray_writes(before)) verdict.faults.push_back(fault);
  const Memory::Snapshot after = subject.memory.snapshot();
  const auto compare = [&](const std::string& which) {
    const std::vector<std::string> different = subject.memory.differences(after);
    if (different.empty()) return true;
    verdict.faults.push_back(
        fmt::format("{} left other bytes in '{}'", which, fmt::join(different, "', '")));
    return false;
  };
  for (int run = 0; run < mode.repeats; ++run) {
    subject.memory.restore(before);
    runner.run(mode.context, verdict.faults);
    if (!compare(run == 0 ? "a second run" : fmt::format("run {}", run + 2))) return;
  }
  subject.memory.restore(before);
  if (runner.replay(mode.context, verdict.faults)) {
    compare("a captured and replayed run");
  } else {
    subject.memory.restore(after);
  }
}

}  // namespace

Verdict check_problem(CheckProblem& problem, const Context& context) {
  HostRunner runner(problem.subject);
  return check_problem(problem, runner, {.context = context});
}

Verdict check_problem(CheckProblem& problem, Runner& runner, const CheckMode& mode) {
  Verdict verdict;
  const Plan plan = runner.supports(mode.context);
  verdict.kernel = plan.kernel;
  if (!plan.supported()) {
    verdict.outcome = Outcome::skipped;
    verdict.faults.push_back(plan.describe());
    return verdict;
  }
  run_repeatedly(problem.subject, runner, mode, verdict);
  problem.exact.reference(reference::Arithmetic::exact);
  if (is_reference(plan.kernel)) {
    compare_exactly(problem.subject, problem.exact, verdict);
  } else {
    judge(problem, verdict);
  }
  check_empty_tokens(problem.subject, verdict);
  if (problem.subject.verify) {
    const std::string fault = problem.subject.verify();
    if (!fault.empty()) verdict.faults.push_back(fault);
  }
  if (!verdict.faults.empty()) verdict.outcome = Outcome::failed;
  return verdict;
}

Verdict check_case(const Case& subject, const CheckMode& mode) {
  try {
    const auto build = [&](Layout layout, std::uint64_t draw) {
      return subject.build(layout, draw, max_checked_case_bytes());
    };
    CheckProblem problem{
        .subject = build(Layout::requested, 0),
        .exact = build(Layout::contiguous, 0),
        .naive = build(Layout::contiguous, 0),
        .build_twin = [&](std::uint64_t draw) { return build(Layout::contiguous, draw); }};
    const std::unique_ptr<Runner> runner = make_runner(mode.device, problem.subject);
    return check_problem(problem, *runner, mode);
  } catch (const Error& error) {
    // A planner without supports() of its own says here that the asked-for kernels do not exist.
    const bool is_refusal = error.code() == ErrorCode::unsupported;
    Verdict verdict{.outcome = is_refusal ? Outcome::skipped : Outcome::failed};
    verdict.faults.push_back(fmt::format("threw: {}", error.what()));
    return verdict;
  } catch (const std::exception& error) {
    Verdict verdict{.outcome = Outcome::failed};
    verdict.faults.push_back(fmt::format("threw: {}", error.what()));
    return verdict;
  }
}

}  // namespace quire::tools
