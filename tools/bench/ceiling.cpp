// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/ceiling.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace quire::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Twelve independent chains hide the latency of the multiply-add units that are out there.
constexpr int kChains = 12;
constexpr int kLanes = 16;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

__attribute__((always_inline)) inline float multiply_add_chains(std::int64_t steps) {
  Vector sums[kChains];
  for (int c = 0; c < kChains; ++c) {
    for (int lane = 0; lane < kLanes; ++lane) sums[c][lane] = static_cast<float>(c + lane);
  }
  Vector factor;
  Vector term;
  for (int lane = 0; lane < kLanes; ++lane) {
    factor[lane] = 0.999f;
    term[lane] = 0.001f;
  }
  for (std::int64_t i = 0; i < steps; ++i) {
    for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * factor + term;
  }
  float total = 0.0f;
  for (int c = 0; c < kChains; ++c) total += sums[c][0] + sums[c][kLanes - 1];
  return total;
}

float run_portable(std::int64_t steps) {
  return multiply_add_chains(steps);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) float run_avx512(std::int64_t steps) {
  return multiply_add_chains(steps);
}
__attribute__((target("avx2,fma"))) float run_avx2(std::int64_t steps) {
  return multiply_add_chains(steps);
}
#endif

using ChainFunction = float (*)(std::int64_t);

ChainFunction widest_chain() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return run_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_avx2;
#endif
  return run_portable;
}

std::uint64_t sum_words(const std::uint64_t* words, std::int64_t count) {
  std::uint64_t sums[8] = {};
  for (std::int64_t i = 0; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

// Seconds until every thread has done its part.
double time_on_threads(int threads, const std::function<void(int)>& work) {
  const auto start = Clock::now();
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(work, t);
  work(0);
  for (std::thread& thread : pool) thread.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double Ceiling::floor_seconds(double flops, double bytes) const {
  const double compute = fma_gflops > 0.0 ? flops / (fma_gflops * 1e9) : 0.0;
  const double memory = read_gbs > 0.0 ? bytes / (read_gbs * 1e9) : 0.0;
  return std::max(compute, memory);
}

Ceiling measure_ceiling(int threads) {
  constexpr int kTries = 5;
  constexpr std::int64_t kSteps = 400'000;
  constexpr std::int64_t kWords = 16 << 20;  // 128 MiB: past any last-level cache but the largest
  const ChainFunction chain = widest_chain();
  const std::vector<std::uint64_t> words(kWords, 1);
  const std::int64_t share = kWords / threads;
  // Results are kept so that the work cannot be optimised away.
  std::vector<float> chain_results(static_cast<std::size_t>(threads));
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  Ceiling ceiling;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double chain_time = time_on_threads(
        threads, [&](int t) { chain_results[static_cast<std::size_t>(t)] = chain(kSteps); });
    const double flops = 2.0 * kChains * kLanes * static_cast<double>(kSteps) * threads;
    ceiling.fma_gflops = std::max(ceiling.fma_gflops, flops / chain_time * 1e-9);
    const double read_time = time_on_threads(threads, [&](int t) {
      sums[static_cast<std::size_t>(t)] = sum_words(words.data() + t * share, share);
    });
    const double bytes = static_cast<double>(share) * threads * sizeof(std::uint64_t);
    ceiling.read_gbs = std::max(ceiling.read_gbs, bytes / read_time * 1e-9);
  }
  volatile float chain_sink = chain_results[0];
  volatile std::uint64_t sum_sink = sums[0];
  static_cast<void>(chain_sink);
  static_cast<void>(sum_sink);
  return ceiling;
}

Ceiling best_of(const Ceiling& left, const Ceiling& right) {
  return {.read_gbs = std::max(left.read_gbs, right.read_gbs),
          .fma_gflops = std::max(left.fma_gflops, right.fma_gflops)};
}

}  // namespace quire::tools
