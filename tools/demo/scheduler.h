// SPDX-License-Identifier: Apache-2.0
// Continuous batching over a PageManager. Every step has a budget of tokens: first one token for
// each request that generates, then chunks of the prompts that are still to be read, all in one
// ragged batch. A request whose next page cannot be had waits; if a generating one needs it, the
// youngest request is sent back to the queue, and later reads again what is not cached any more.
// What the manager finds of a prompt is shared, or copied where a page goes on otherwise. The pages
// of the system prompt are pinned once the first request has filled them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quire/page_manager.h"
#include "tools/demo/request.h"

namespace quire::tools::demo {

using PageId = std::uint32_t;

struct SchedulerOptions {
  std::int64_t num_pages = 11;
  std::int64_t page_size = 16;
  std::int64_t token_budget = 48;
  std::int64_t max_batch = 4;
};

enum class Phase : std::uint8_t { prefill, decode };

// A request's share of a step.
struct ScheduledSequence {
  int request = 0;
  SequenceId id = -1;  // of the page manager
  Phase phase = Phase::prefill;
  std::int64_t cache_length = 0;
  std::vector<TokenId> tokens{};   // the new ones
  std::vector<PageId> pages{};     // enough for cache_length + new tokens
  std::int64_t shared_pages = 0;   // of them, at the front, those that were found when it began
  std::int64_t copied_tokens = 0;  // found in the page behind those, which was copied
  bool wants_token = false;        // the last new token's successor is to be generated
};

struct Step {
  int index = 0;
  std::vector<ScheduledSequence> sequences{};
  std::vector<int> admitted{};   // requests that take part for the first time, or again
  std::vector<int> waiting{};    // requests that have arrived and have no part in this step
  std::vector<int> preempted{};  // requests that lost their pages at the start of this step
  // Before the ops: pages that have a new owner, whose contents mean nothing; and then, the copies.
  std::vector<PageId> fresh_pages{};
  PageCopies copies{};

  std::int64_t num_tokens() const;
  std::int64_t num_keys() const;
};

class Scheduler {
 public:
  // Throws std::invalid_argument for a request that no empty pool could hold.
  Scheduler(const SchedulerOptions& options, Workload workload);

  bool is_finished() const;
  // The next step. It may have no sequences while nobody has arrived.
  Step next();
  // `tokens[i]` follows sequence i of the step; ignored unless it wants one. Returns the requests
  // that finished and left.
  std::vector<int> complete(const Step& step, std::span<const TokenId> tokens);
  // Gives the system prompt's pages back; for the end of the day.
  void drop_system_prompt();

  PageManager& pages() { return pages_; }
  const std::vector<TokenId>& generated(int request) const;
  std::int64_t prompt_length(int request) const;
  // Tokens that were not computed because their K and V were cached, and how many of them were
  // copied with their page.
  std::int64_t num_shared_tokens() const { return num_shared_tokens_; }
  std::int64_t num_copied_tokens() const { return num_copied_tokens_; }
  std::int64_t num_preemptions() const { return num_preemptions_; }
  // How often a page was handed out that another owner had before.
  std::int64_t num_reuses() const { return num_reuses_; }
  std::int64_t num_available() const;  // pages that nobody uses

 private:
  enum class Status : std::uint8_t { expected, waiting, running, finished };
  struct State {
    Request request;
    Status status = Status::expected;
    std::vector<TokenId> generated{};
    SequenceId id = -1;  // while it runs
    std::vector<PageId> pages{};
    std::int64_t cached = 0;
    std::int64_t shared_pages = 0;
    std::int64_t copied_tokens = 0;

    std::int64_t num_known() const;  // prompt and generated tokens
    std::int64_t num_uncached() const { return num_known() - cached; }
    bool is_decoding() const { return num_uncached() == 1 && !generated.empty(); }
    std::vector<TokenId> known() const;
  };

  State& state(int request) { return states_.at(static_cast<std::size_t>(request)); }
  void admit_arrivals();
  void schedule_decodes(Step& step);
  void schedule_prefills(Step& step);
  void admit_waiting(Step& step);
  bool schedule_chunk(Step& step, int request);
  bool grow(Step& step, State& state, std::int64_t count);
  bool grow_by_preemption(Step& step, int request);
  void preempt(Step& step, int request);
  void find_prefix(State& state);
  void pin_system_prompt(const State& state);
  void release_pages(State& state);
  ScheduledSequence make_sequence(int request, std::int64_t count) const;

  SchedulerOptions options_;
  std::vector<TokenId> system_prompt_;
  std::vector<State> states_;
  std::vector<int> waiting_;  // in order of arrival; a preempted request goes to the front
  std::vector<int> running_;  // in order of admission
  PageManager pages_;
  std::optional<SequenceId> pin_;  // of the system prompt
  std::vector<bool> was_used_;     // [num_pages]
  int next_step_ = 0;
  std::int64_t num_shared_tokens_ = 0;
  std::int64_t num_copied_tokens_ = 0;
  std::int64_t num_preemptions_ = 0;
  std::int64_t num_reuses_ = 0;
};

}  // namespace quire::tools::demo
