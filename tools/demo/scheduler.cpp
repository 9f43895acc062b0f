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

TokenId Scheduler::State::token(std::int64_t position) const {
  const std::int64_t prompt = length(request.prompt);
  return position < prompt ? request.prompt[static_cast<std::size_t>(position)]
                           : generated[static_cast<std::size_t>(position - prompt)];
}

Scheduler::Scheduler(const SchedulerOptions& options, Workload workload, PageAllocator& pages)
    : options_(options), system_prompt_(std::move(workload.system_prompt)), pages_(pages) {
  // Only whole pages can be shared: a partly filled one would be written by two owners.
  const std::int64_t whole = length(system_prompt_) / options.page_size * options.page_size;
  system_prompt_.resize(static_cast<std::size_t>(whole));
  for (Request& request : workload.requests) {
    const std::int64_t longest = length(request.prompt) + request.max_new_tokens;
    const std::int64_t kept = whole / options.page_size;
    if (pages_for(longest, options.page_size) + kept > pages.num_pages()) {
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
  Step step{.index = next_step_++, .sequences = {}, .admitted = {}, .waiting = {}, .preempted = {}};
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
  while (!waiting_.empty() && std::cmp_less(running_.size(), options_.max_batch)) {
    const int request = waiting_.front();
    // A request that was sent away in this very step would only take the pages back.
    if (std::count(step.preempted.begin(), step.preempted.end(), request) > 0) return;
    attach_system_prompt(state(request));
    if (!schedule_chunk(step, request)) {
      release_pages(state(request));
      return;
    }
    step.admitted.push_back(request);
    num_shared_tokens_ += state(request).cached;
    state(request).status = Status::running;
    waiting_.erase(waiting_.begin());
    running_.push_back(request);
  }
}

// As much of the prompt as the budget and the free pages allow.
bool Scheduler::schedule_chunk(Step& step, int request) {
  State& reader = state(request);
  const auto owned = static_cast<std::int64_t>(reader.pages.size());
  const std::int64_t room = (owned + pages_.num_free()) * options_.page_size - reader.cached;
  const std::int64_t count =
      std::min({reader.num_uncached(), options_.token_budget - step.num_tokens(), room});
  if (count <= 0 || !grow(reader, reader.cached + count)) return false;
  step.sequences.push_back(make_sequence(request, count));
  return true;
}

// Pages for `length` tokens, all or none.
bool Scheduler::grow(State& owner, std::int64_t length) {
  const std::int64_t missing =
      pages_for(length, options_.page_size) - static_cast<std::int64_t>(owner.pages.size());
  if (missing > pages_.num_free()) return false;
  for (std::int64_t i = 0; i < missing; ++i) owner.pages.push_back(*pages_.allocate());
  return true;
}

// Room for one more token, at the cost of younger requests. False: the request itself was the
// youngest.
bool Scheduler::grow_by_preemption(Step& step, int request) {
  while (!grow(state(request), state(request).cached + 1)) {
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
  ScheduledSequence sequence{
      .request = request,
      .phase = owner.is_decoding() ? Phase::decode : Phase::prefill,
      .cache_length = owner.cached,
      .tokens = {},
      .pages = owner.pages,
      .shared_pages = owner.shared_pages,
      .wants_token = owner.cached + count == owner.num_known(),
  };
  for (std::int64_t i = 0; i < count; ++i) {
    sequence.tokens.push_back(owner.token(owner.cached + i));
  }
  return sequence;
}

void Scheduler::attach_system_prompt(State& owner) {
  // At least one token must be left to compute, or there is nothing to generate from.
  if (!owner.request.has_system_prompt || owner.num_known() <= length(system_prompt_)) return;
  if (system_pages_.empty()) return;
  owner.pages = system_pages_;
  owner.shared_pages = static_cast<std::int64_t>(system_pages_.size());
  owner.cached = owner.shared_pages * options_.page_size;
  for (const PageId page : system_pages_) pages_.share(page);
}

void Scheduler::keep_system_prompt(const State& owner) {
  if (!owner.request.has_system_prompt || !system_pages_.empty()) return;
  if (owner.cached < length(system_prompt_)) return;
  const std::int64_t count = length(system_prompt_) / options_.page_size;
  system_pages_.assign(owner.pages.begin(), owner.pages.begin() + count);
  for (const PageId page : system_pages_) pages_.share(page);
}

void Scheduler::drop_system_prompt() {
  for (const PageId page : system_pages_) pages_.release(page);
  system_pages_.clear();
}

void Scheduler::release_pages(State& owner) {
  for (const PageId page : owner.pages) pages_.release(page);
  owner.pages.clear();
  owner.cached = 0;
  owner.shared_pages = 0;
}

std::vector<int> Scheduler::complete(const Step& step, std::span<const TokenId> tokens) {
  std::vector<int> finished;
  for (std::size_t i = 0; i < step.sequences.size(); ++i) {
    const ScheduledSequence& sequence = step.sequences[i];
    State& owner = state(sequence.request);
    owner.cached += length(sequence.tokens);
    keep_system_prompt(owner);
    if (!sequence.wants_token) continue;
    owner.generated.push_back(tokens[i]);
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
