// SPDX-License-Identifier: Apache-2.0
#include "fuzz/problems/random_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cpu/runtime/target.h"
#include "fuzz/problems/flush_to_zero.h"
#include "fuzz/problems/gaps.h"
#include "fuzz/problems/masked_values.h"
#include "fuzz/problems/random_case.h"
#include "quire/error.h"
#include "tools/device_choice.h"

namespace quire::test {
namespace {

using tools::Built;
using tools::Layout;
using tools::Runner;

// Runs tasks from the last to the first on the caller's own thread: an order no pool would choose, at no cost.
void run_backwards(void*, std::int64_t tasks, ParallelFor::Task task, void* data) {
  for (std::int64_t index = tasks - 1; index >= 0; --index) task(data, index);
}

// Every other run has three workers instead of one and a caller that flushes subnormal numbers to zero; neither must
// change a bit.
class OtherThreads final : public Runner {
 public:
  explicit OtherThreads(std::unique_ptr<Runner> runner) : runner_(std::move(runner)) {}

  Plan supports(const Context& context) override { return runner_->supports(context); }
  void run(const Context& context, std::vector<std::string>& faults) override {
    Context other = context;
    other.num_threads = is_odd_ ? 3 : 1;
    is_odd_ = !is_odd_;
    if (other.num_threads == 1) {
      runner_->run(other, faults);
      return;
    }
    other.parallel_for.run = run_backwards;
    const FlushToZero flush;
    runner_->run(other, faults);
    if (!flush.is_still_on()) faults.emplace_back("changed the caller's floating-point mode");
  }
  bool replay(const Context& context, std::vector<std::string>& faults) override {
    return runner_->replay(context, faults);
  }

 private:
  std::unique_ptr<Runner> runner_;
  bool is_odd_ = false;
};

// The oracle's result stays in the twin's memory, so once is enough however many targets ask.
void evaluate_once(Built& twin) {
  const auto result = std::make_shared<std::optional<bool>>();
  twin.reference = [result, reference = twin.reference](reference::Arithmetic arithmetic) {
    if (!result->has_value()) *result = reference(arithmetic);
    return **result;
  };
}

Built build_edited(const RandomProblem& problem, Layout layout, std::uint64_t draw = 0) {
  Built built = problem.parsed.build(layout, draw);
  apply(problem.edits, problem.object, built);
  // An LSE that was -inf may be a number now, and 0 times a weight that is not finite is NaN: the oracle knows.
  // Tokens that mla_prefill decodes go through kv_b_proj as through w_uv.
  const bool is_other_when_empty =
      std::ranges::any_of(problem.edits.tensors, [](const TensorEdit& edit) {
        return edit.tensor == "lses" || edit.tensor == "w_uv" || edit.tensor == "kv_b_proj";
      });
  if (is_other_when_empty) built.empty_tokens.clear();
  return built;
}

std::unique_ptr<Runner> make_runner(const RandomProblem& problem, const std::string& device,
                                    Built& subject, const Built& exact) {
  std::vector<GappedTensor> gapped;
  if (problem.has_gaps) {
    Draw draw = problem.gap_draw;
    gapped = add_gaps(draw, subject);
  }
  std::unique_ptr<Runner> runner =
      bring_back(tools::make_runner(device, subject), std::move(gapped));
  if (device == "cpu") runner = std::make_unique<OtherThreads>(std::move(runner));
  const std::vector<bool> open = sequences_with_open_values(problem.object, problem.edits);
  if (std::ranges::find(open, true) == open.end()) return runner;
  exact.reference(reference::Arithmetic::exact);
  return accept_masked_values(std::move(runner), problem.object, open, subject, exact);
}

tools::Verdict fail(const std::string& fault) {
  return {.outcome = tools::Outcome::failed, .faults = {fault}};
}

tools::Verdict check_target(tools::CheckProblem& twins, Runner& runner,
                            const tools::CheckMode& mode) {
  try {
    return tools::check_problem(twins, runner, mode);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) return fail(std::string("threw: ") + error.what());
    return {.outcome = tools::Outcome::skipped, .faults = {error.what()}};
  } catch (const std::exception& error) {
    return fail(std::string("threw: ") + error.what());
  }
}

}  // namespace

std::string RandomProblem::describe() const {
  return object.dump() + test::describe(edits) + (has_gaps ? "; with gaps" : "");
}

RandomProblem draw_problem(const std::string& op, Draw& draw) {
  const bool has_edits = draw.one_in(3);
  const bool has_gaps = draw.one_in(3);
  nlohmann::json object = random_case(op, draw);
  tools::Case parsed = tools::parse_cases(nlohmann::json::array({object}), "random").front();
  Edits edits;
  if (has_edits) edits = draw_edits(draw, object, parsed.build(Layout::requested));
  // A packed weight is a copy of its own.
  const bool is_packed = object.value("packed", false);
  return {.object = std::move(object),
          .parsed = std::move(parsed),
          .edits = std::move(edits),
          .has_gaps = has_gaps && !is_packed,
          .gap_draw = Draw(draw.bits())};
}

std::vector<TargetVerdict> check_random(const RandomProblem& problem,
                                        const std::vector<std::string>& targets,
                                        const std::string& device) {
  tools::CheckProblem twins{.subject = build_edited(problem, Layout::requested),
                            .exact = build_edited(problem, Layout::contiguous),
                            .naive = build_edited(problem, Layout::contiguous),
                            .build_twin = [&](std::uint64_t draw) {
                              return build_edited(problem, Layout::contiguous, draw);
                            }};
  evaluate_once(twins.exact);
  evaluate_once(twins.naive);
  const std::unique_ptr<Runner> runner = make_runner(problem, device, twins.subject, twins.exact);
  const tools::Memory::Snapshot before = twins.subject.memory.snapshot();
  std::vector<TargetVerdict> verdicts;
  for (const std::string& target : targets) {
    tools::CheckMode mode{.device = device};
    mode.context.kernel = target;
    mode.context.num_threads = 1;
    verdicts.push_back({.target = target, .verdict = check_target(twins, *runner, mode)});
    twins.subject.memory.restore(before);
  }
  return verdicts;
}

std::vector<std::string> targets_of_this_machine() {
  std::vector<std::string> targets;
  for (const cpu::Target target : cpu::compiled_targets()) {
    if (cpu::why_not(target).empty()) targets.push_back(fmt::format("cpu/{}/", cpu::name(target)));
  }
  return targets;
}

}  // namespace quire::test
