// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

namespace quire::tools::demo {
namespace {

// Keys of all sequences, as an engine asks for them to size its gathered buffers.
std::int64_t count_keys(const Step& step, const Batch& batch, Referee& referee) {
  const auto batch_size = static_cast<std::int64_t>(step.sequences.size());
  const Tensor offsets(DType::u32, {batch_size + 1});
  referee.call(kRowOffsets, {.row_offsets = batch.row_offsets.view(),
                             .cache_lengths = batch.cache_lengths,
                             .out = offsets.view()});
  const std::int64_t total = offsets.view().as<std::uint32_t>()[batch_size];
  std::optional<std::string> fault;
  if (total != step.num_keys()) {
    fault = fmt::format("{} keys, the scheduler counts {}", total, step.num_keys());
  }
  referee.require(kRowOffsets.name, fault);
  return total;
}

void add_results(const Scheduler& scheduler, std::size_t num_requests, Summary& summary) {
  for (std::size_t r = 0; r < num_requests; ++r) {
    const auto request = static_cast<int>(r);
    summary.requests.push_back({.prompt_length = scheduler.prompt_length(request),
                                .generated = scheduler.generated(request)});
    summary.num_generated += static_cast<std::int64_t>(scheduler.generated(request).size());
  }
  summary.num_shared_tokens = scheduler.num_shared_tokens();
  summary.num_copied_tokens = scheduler.num_copied_tokens();
  summary.num_preemptions = scheduler.num_preemptions();
  summary.num_reuses = scheduler.num_reuses();
}

// The pages first: new owners find NaN in theirs, or the copy that they begin with.
std::vector<TokenId> run_step(const Step& step, Stack& stack, BatchTables& tables, Referee& referee,
                              StepReport& report) {
  for (const PageId page : step.fresh_pages) stack.poison(page);
  if (step.sequences.empty()) return {};
  tables.place(step);
  const Batch batch(step, tables);
  if (!step.copies.empty()) stack.copy_pages(batch, referee);
  report.num_keys = count_keys(step, batch, referee);
  return stack.run(batch, referee);
}

}  // namespace

Summary serve(Stack& stack, const Workload& workload, const SchedulerOptions& options,
              Referee& referee, const std::function<void(const StepReport&)>& on_step) {
  const auto start = std::chrono::steady_clock::now();
  Scheduler scheduler(options, workload);
  BatchTables tables(scheduler.pages(), options.max_batch, options.num_pages + 1);
  Summary summary;
  while (!scheduler.is_finished()) {
    const Step step = scheduler.next();
    referee.begin_step(stack.name(), step.index);
    const PageStatistics pages = scheduler.pages().statistics();
    StepReport report{.step = step,
                      .finished = {},
                      .pages_in_use = pages.used_pages[0],
                      .pages_cached = pages.cached_pages[0],
                      .num_pages = options.num_pages};
    summary.peak_pages = std::max(summary.peak_pages, report.pages_in_use);
    const std::vector<TokenId> tokens = run_step(step, stack, tables, referee, report);
    report.finished = scheduler.complete(step, tokens);
    report.num_reuses = scheduler.num_reuses();
    if (on_step) on_step(report);
    summary.num_tokens += step.num_tokens();
    ++summary.num_steps;
  }
  scheduler.drop_system_prompt();
  add_results(scheduler, workload.requests.size(), summary);
  summary.pages_left = scheduler.pages().statistics().used_pages[0];
  summary.time = std::chrono::steady_clock::now() - start;
  return summary;
}

}  // namespace quire::tools::demo
