// SPDX-License-Identifier: Apache-2.0
// Serves a workload with a stack, step by step, until every request has left.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "tools/demo/scheduler.h"
#include "tools/demo/stack.h"

namespace quire::tools::demo {

// One step, for the timeline.
struct StepReport {
  const Step& step;
  std::vector<int> finished;
  std::int64_t num_keys = 0;      // of all sequences, from row_offsets
  std::int64_t pages_in_use = 0;  // while the step ran
  std::int64_t pages_cached = 0;  // not in use, kept for later requests
  std::int64_t num_pages = 0;
  std::int64_t num_reuses = 0;  // so far
};

struct ServedRequest {
  std::int64_t prompt_length = 0;
  std::vector<TokenId> generated;
};

struct Summary {
  std::vector<ServedRequest> requests;
  int num_steps = 0;
  std::int64_t num_tokens = 0;  // that went through the stack
  std::int64_t num_generated = 0;
  std::int64_t num_shared_tokens = 0;  // that were cached already
  std::int64_t num_copied_tokens = 0;  // of those, in pages that were copied
  std::int64_t num_preemptions = 0;
  std::int64_t num_reuses = 0;
  std::int64_t peak_pages = 0;
  std::int64_t pages_left = 0;  // still in use at the end: 0 unless pages leaked
  std::chrono::nanoseconds time{};
};

// options.num_pages is the size of the stack's pools.
Summary serve(Stack& stack, const Workload& workload, const SchedulerOptions& options,
              Referee& referee, const std::function<void(const StepReport&)>& on_step = {});

}  // namespace quire::tools::demo
