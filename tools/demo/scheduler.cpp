// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/scheduler.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace quire::tools::demo {
namespace {

std::int64_t pages_for(std::int64_t tokens, std::int64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

std::int64_t length(const std::vector<TokenId>& tokens) {
  return static_cast<std::int64_t>(tokens.size());
}

bool is_scheduled(const Step& step, int request) {
  return std::any_of(step.sequences.begin(), step.sequences.end(),
                     [&](const ScheduledSequence& s) { return s.request == request; });
}

}  // namespace

std::int64_t Step::num_tokens() const {
  std::int64_t sum = 0;
  for (const ScheduledSequence& sequence : sequences) sum += length(sequence.tokens);
  return sum;
}

std::int64_t Step::num_keys() const {
  std::int64_t sum = num_tokens();
  for (const ScheduledSequence& sequence : sequences) sum += sequence.cache_length;
  return sum;
}

std::int64_t Scheduler::State::num_known() const {
  return length(request.prompt) + length(generated);
}

std::vector<TokenId> Scheduler::State::known() const {
  std::vector<TokenId> tokens = request.prompt;
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  return tokens;
}

Scheduler::Scheduler(const SchedulerOptions& options, Workload workload)
    : options_(options),
      system_prompt_(std::move(workload.system_prompt)),
      pages_({.groups = {{.page_size = static_cast<std::int32_t>(options.page_size)}},
              .pools = {{.pages = options.num_pages}}}),
      was_used_(static_cast<std::size_t>(options.num_pages), false) {
  const std::int64_t pinned = length(system_prompt_) / options.page_size;  // whole pages
  for (Request& request : workload.requests) {
    const std::int64_t longest = length(request.prompt) + request.max_new_tokens;
    if (pages_for(longest, options.page_size) + pinned > options.num_pages) {
      throw std::invalid_argument("a request of " + std::to_string(longest) +
                                  " tokens does not fit into the pool");
    }
    states_.push_back({.request = std::move(request)});
  }
}

bool Scheduler::is_finished() const {
  return std::all_of(states_.begin(), states_.end(),
                     [](const State& s) { return s.status == Status::finished; });
}

Step Scheduler::next() {
  Step step{.index = next_step_++};
  admit_arrivals();
  schedule_decodes(step);
  schedule_prefills(step);
  // Half-read prompts hold all pages and nobody can go on: the youngest makes room.
  while (step.sequences.empty() && running_.size() > 1) {
    preempt(step, running_.back());
    schedule_prefills(step);
  }
  admit_waiting(step);
  step.waiting = waiting_;
  for (const int request : running_) {
    if (!is_scheduled(step, request)) step.waiting.push_back(request);
  }
  // Without a batch there is nothing to execute them with: they are kept for the next one.
  if (!step.sequences.empty()) step.copies = pages_.take_copies();
  return step;
}

void Scheduler::admit_arrivals() {
  for (std::size_t r = 0; r < states_.size(); ++r) {
    State& candidate = states_[r];
    if (candidate.status != Status::expected) continue;
    if (candidate.request.arrival_step >= next_step_) continue;
    candidate.status = Status::waiting;
    waiting_.push_back(static_cast<int>(r));
  }
}

void Scheduler::schedule_decodes(Step& step) {
  const std::vector<int> candidates = running_;  // preemption changes running_
  for (const int request : candidates) {
    if (state(request).status != Status::running || !state(request).is_decoding()) continue;
    if (step.num_tokens() == options_.token_budget) return;
    if (grow_by_preemption(step, request)) step.sequences.push_back(make_sequence(request, 1));
  }
}

void Scheduler::schedule_prefills(Step& step) {
  for (const int request : running_) {
    if (state(request).is_decoding()) continue;
    schedule_chunk(step, request);
  }
}

void Scheduler::admit_waiting(Step& step) {
  while (!waiting_.empty() && std::cmp_less(running_.size(), options_.max_batch) &&
         step.num_tokens() < options_.token_budget) {
    const int request = waiting_.front();
    // A request that was sent away in this very step would only take the pages back.
    if (std::count(step.preempted.begin(), step.preempted.end(), request) > 0) return;
    find_prefix(state(request));
    if (!schedule_chunk(step, request)) {
      release_pages(state(request));
      return;
    }
    step.admitted.push_back(request);
    num_shared_tokens_ += state(request).cached;
    num_copied_tokens_ += state(request).copied_tokens;
    state(request).status = Status::running;
    waiting_.erase(waiting_.begin());
    running_.push_back(request);
  }
}

std::int64_t Scheduler::num_available() const {
  const PageStatistics now = pages_.statistics();
  return now.free_pages[0] + now.cached_pages[0];
}

// As much of the prompt as the budget and the available pages allow.
bool Scheduler::schedule_chunk(Step& step, int request) {
  State& reader = state(request);
  const auto owned = static_cast<std::int64_t>(pages_.pages(reader.id).size());
  const std::int64_t room = (owned + num_available()) * options_.page_size - reader.cached;
  const std::int64_t count =
      std::min({reader.num_uncached(), options_.token_budget - step.num_tokens(), room});
  if (count <= 0 || !grow(step, reader, count)) return false;
  step.sequences.push_back(make_sequence(request, count));
  return true;
}

// Pages for `count` more tokens, all or none.
bool Scheduler::grow(Step& step, State& owner, std::int64_t count) {
  if (!pages_.extend(owner.id, count)) return false;
  const std::vector<PageId> before = std::exchange(owner.pages, pages_.pages(owner.id));
  for (std::size_t i = 0; i < owner.pages.size(); ++i) {
    const PageId page = owner.pages[i];
    if (i < before.size() && before[i] == page) continue;
    step.fresh_pages.push_back(page);
    if (was_used_[page]) ++num_reuses_;
    was_used_[page] = true;
  }
  return true;
}

// Room for one more token, at the cost of younger requests. False: the request itself was the
// youngest.
bool Scheduler::grow_by_preemption(Step& step, int request) {
  while (!grow(step, state(request), 1)) {
    const int youngest = running_.back();
    preempt(step, youngest);
    if (youngest == request) return false;
  }
  return true;
}

void Scheduler::preempt(Step& step, int request) {
  release_pages(state(request));
  state(request).status = Status::waiting;
  running_.erase(std::find(running_.begin(), running_.end(), request));
  waiting_.insert(waiting_.begin(), request);
  step.preempted.push_back(request);
  ++num_preemptions_;
}

ScheduledSequence Scheduler::make_sequence(int request, std::int64_t count) const {
  const State& owner = states_[static_cast<std::size_t>(request)];
  const std::vector<TokenId> known = owner.known();
  const auto first = known.begin() + owner.cached;
  return {.request = request,
          .id = owner.id,
          .phase = owner.is_decoding() ? Phase::decode : Phase::prefill,
          .cache_length = owner.cached,
          .tokens = {first, first + count},
          .pages = owner.pages,
          .shared_pages = owner.shared_pages,
          .copied_tokens = owner.copied_tokens,
          .wants_token = owner.cached + count == owner.num_known()};
}

// What is cached of its tokens. A page of which only the first tokens are the same is copied: the
// request has a page of its own there, which is still to be filled (grow lists it).
void Scheduler::find_prefix(State& owner) {
  const Admission found = pages_.create(owner.known());
  owner.id = found.id;
  owner.cached = found.cached_tokens;
  owner.copied_tokens = found.partial_tokens;
  owner.shared_pages = (found.cached_tokens - found.partial_tokens) / options_.page_size;
  owner.pages = pages_.pages(owner.id);
  owner.pages.resize(static_cast<std::size_t>(owner.shared_pages));
}

void Scheduler::pin_system_prompt(const State& owner) {
  const std::int64_t whole = length(system_prompt_) / options_.page_size * options_.page_size;
  if (pin_ || whole == 0 || !owner.request.has_system_prompt || owner.cached < whole) return;
  pin_ = pages_.pin(system_prompt_).id;
}

void Scheduler::drop_system_prompt() {
  if (pin_) pages_.free(*pin_);
  pin_.reset();
}

void Scheduler::release_pages(State& owner) {
  pages_.free(owner.id);
  owner.id = -1;
  owner.pages.clear();
  owner.cached = owner.shared_pages = owner.copied_tokens = 0;
}

std::vector<int> Scheduler::complete(const Step& step, std::span<const TokenId> tokens) {
  std::vector<int> finished;
  for (std::size_t i = 0; i < step.sequences.size(); ++i) {
    const ScheduledSequence& sequence = step.sequences[i];
    State& owner = state(sequence.request);
    pages_.advance(owner.id, length(sequence.tokens));
    owner.cached += length(sequence.tokens);
    pin_system_prompt(owner);
    if (!sequence.wants_token) continue;
    owner.generated.push_back(tokens[i]);
    pages_.append(owner.id, tokens.subspan(i, 1));
    if (length(owner.generated) < owner.request.max_new_tokens) continue;
    release_pages(owner);
    owner.status = Status::finished;
    running_.erase(std::find(running_.begin(), running_.end(), sequence.request));
    finished.push_back(sequence.request);
  }
  return finished;
}

const std::vector<TokenId>& Scheduler::generated(int request) const {
  return states_.at(static_cast<std::size_t>(request)).generated;
}

std::int64_t Scheduler::prompt_length(int request) const {
  return length(states_.at(static_cast<std::size_t>(request)).request.prompt);
}

}  // namespace quire::tools::demo
