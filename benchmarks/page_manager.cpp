// SPDX-License-Identifier: Apache-2.0
// What PageManager costs, at a million pages: nanoseconds for a page (allocate, free, look up) or for a sequence (step).
//   ninja -C build/release bench_page_manager; build/release/benchmarks/bench_page_manager
// Prompts are random and every one is another: no lookup finds its lines in a cache by luck.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>

#include "quire/page_manager.h"

namespace quire {
namespace {

constexpr std::int64_t kPages = 1 << 20;
constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kPromptPages = 512;  // 8 192 tokens

std::vector<std::int32_t> prompt(std::mt19937& random, std::int64_t pages) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(pages * kPageSize + 1));
  std::ranges::generate(tokens, [&] { return static_cast<std::int32_t>(random() % 128000); });
  return tokens;
}

SequenceId compute(PageManager& pages, const std::vector<std::int32_t>& tokens) {
  const Admission made = pages.create(tokens);
  const auto rest = static_cast<std::int64_t>(tokens.size()) - made.cached_tokens;
  if (!pages.extend(made.id, rest)) return -1;
  pages.advance(made.id, rest);
  return made.id;
}

void per_page(benchmark::State& state, std::int64_t pages) {
  state.counters["page"] =
      benchmark::Counter(static_cast<double>(pages), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}

// Pages that no prefix index knows: a free list and a table.
void allocate_and_free(benchmark::State& state) {
  PageManager pages({.pools = {{.pages = kPages}}, .caches_prefixes = false});
  std::mt19937 random(1);
  const auto tokens = prompt(random, kPromptPages);
  const Admission made = pages.create(tokens);
  for (auto _ : state) {
    benchmark::DoNotOptimize(pages.extend(made.id, kPromptPages * kPageSize));
    state.PauseTiming();
    pages.advance(made.id, kPromptPages * kPageSize);
    state.ResumeTiming();
    pages.trim(made.id, 0);
    state.PauseTiming();
    pages.append(made.id, tokens);
    state.ResumeTiming();
  }
  per_page(state, 2 * kPromptPages);
}
BENCHMARK(allocate_and_free);

// A full manager: every page that is allocated was cached for somebody else.
struct Full {
  PageManager pages{{.pools = {{.pages = kPages}}}};
  std::vector<std::vector<std::int32_t>> prompts{};
  std::mt19937 random{2};

  Full() {
    for (std::int64_t i = 0; i < kPages / kPromptPages; ++i) {
      prompts.push_back(prompt(random, kPromptPages - 1));
      pages.free(compute(pages, prompts.back()));
    }
    std::ranges::shuffle(prompts, random);
  }
};

Full& full() {
  static Full manager;
  return manager;
}

void look_up(benchmark::State& state) {
  Full& manager = full();
  std::size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(manager.pages.probe(manager.prompts[next]));
    next = (next + 1) % manager.prompts.size();
  }
  per_page(state, kPromptPages - 1);
}
BENCHMARK(look_up);

// As after decoding: prompts that were computed together, a page at a time in turns, so that neither the records nor the
// pages of one stand side by side.
struct FullInTurns {
  static constexpr std::int64_t kTogether = 64;
  PageManager pages{{.pools = {{.pages = kPages}}}};
  std::vector<std::vector<std::int32_t>> prompts{};

  FullInTurns() {
    std::mt19937 random(4);
    for (std::int64_t i = 0; i < kPages / kPromptPages; i += kTogether) {
      std::vector<SequenceId> ids;
      for (std::int64_t j = 0; j < kTogether; ++j) {
        prompts.push_back(prompt(random, kPromptPages - 1));
        ids.push_back(pages.create(prompts.back()).id);
      }
      for (std::int64_t page = 0; page + 1 < kPromptPages; ++page) {
        std::ranges::shuffle(ids, random);
        for (const SequenceId id : ids) {
          if (pages.extend(id, kPageSize)) pages.advance(id, kPageSize);
        }
      }
      for (const SequenceId id : ids) pages.free(id);
    }
    std::ranges::shuffle(prompts, random);
  }
};

void look_up_in_turns(benchmark::State& state) {
  static FullInTurns manager;
  std::size_t next = 0;
  for (auto _ : state) {
    const PrefixProbe found = manager.pages.probe(manager.prompts[next]);
    if (found.cached_tokens != (kPromptPages - 1) * kPageSize) state.SkipWithError("a miss");
    next = (next + 1) % manager.prompts.size();
  }
  per_page(state, kPromptPages - 1);
}
BENCHMARK(look_up_in_turns);

// A hit: the pages are in use, and given back.
void create_and_free(benchmark::State& state) {
  Full& manager = full();
  std::size_t next = 0;
  for (auto _ : state) {
    manager.pages.free(manager.pages.create(manager.prompts[next]).id);
    next = (next + 1) % manager.prompts.size();
  }
  per_page(state, kPromptPages - 1);
}
BENCHMARK(create_and_free);

// A miss: other pages are evicted, the new ones are published.
void evict_and_publish(benchmark::State& state) {
  Full& manager = full();
  std::vector<std::vector<std::int32_t>> prompts;
  for (int i = 0; i < 64; ++i) prompts.push_back(prompt(manager.random, kPromptPages - 1));
  std::size_t next = 0;
  for (auto _ : state) {
    manager.pages.free(compute(manager.pages, prompts[next]));
    state.PauseTiming();
    prompts[next] = prompt(manager.random, kPromptPages - 1);
    next = (next + 1) % prompts.size();
    state.ResumeTiming();
  }
  per_page(state, kPromptPages - 1);
}
BENCHMARK(evict_and_publish);

void decode_step(benchmark::State& state) {
  const auto batch = static_cast<std::size_t>(state.range(0));
  PageManager pages({.pools = {{.pages = kPages}}});
  std::vector<std::uint32_t> table(batch * 4096);
  std::vector<std::uint32_t> lengths(batch);
  const PageTableView view{.data = table.data(), .row_stride = 4096, .columns = 4096};
  pages.bind_tables({&view, 1}, lengths.data(), static_cast<std::int64_t>(batch));
  std::mt19937 random(3);
  std::vector<SequenceId> ids;
  std::vector<std::int32_t> sampled(batch);
  for (std::size_t i = 0; i < batch; ++i) {
    ids.push_back(compute(pages, prompt(random, 64)));
    pages.place(ids.back(), static_cast<std::int64_t>(i));
    sampled[i] = static_cast<std::int32_t>(random() % 128000);
  }
  std::int64_t steps = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(pages.step(ids, sampled));
    pages.advance_all(ids);
    if (++steps % 2048 != 0) continue;
    state.PauseTiming();
    for (const SequenceId id : ids) pages.trim(id, 1024);
    state.ResumeTiming();
  }
  state.counters["sequence"] =
      benchmark::Counter(static_cast<double>(batch), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}
BENCHMARK(decode_step)->Arg(1)->Arg(64)->Arg(512);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
