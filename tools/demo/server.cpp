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
                             .cache_lengths = batch.cache_lengths.view(),
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
  summary.num_preemptions = scheduler.num_preemptions();
}

}  // namespace

Summary serve(Stack& stack, const Workload& workload, const SchedulerOptions& options,
              std::int64_t num_pages, Referee& referee,
              const std::function<void(const StepReport&)>& on_step) {
  const auto start = std::chrono::steady_clock::now();
  PageAllocator pages(num_pages, [&](PageId page) { stack.poison(page); });
  Scheduler scheduler(options, workload, pages);
  Summary summary;
  while (!scheduler.is_finished()) {
    const Step step = scheduler.next();
    referee.begin_step(stack.name(), step.index);
    StepReport report{.step = step, .finished = {}, .num_pages = num_pages};
    report.pages_in_use = pages.num_in_use();
    summary.peak_pages = std::max(summary.peak_pages, report.pages_in_use);
    std::vector<TokenId> tokens;
    if (!step.sequences.empty()) {
      const Batch batch(step, pages);
      report.num_keys = count_keys(step, batch, referee);
      tokens = stack.run(batch, referee);
    }
    report.finished = scheduler.complete(step, tokens);
    report.num_reuses = pages.num_reuses();
    if (on_step) on_step(report);
    summary.num_tokens += step.num_tokens();
    ++summary.num_steps;
  }
  scheduler.drop_system_prompt();
  add_results(scheduler, workload.requests.size(), summary);
  summary.num_reuses = pages.num_reuses();
  summary.pages_left = pages.num_in_use();
  summary.time = std::chrono::steady_clock::now() - start;
  return summary;
}

}  // namespace quire::tools::demo
