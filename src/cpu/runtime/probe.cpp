// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/probe.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/tile_kernels.h"

namespace quire::cpu {
namespace {

constexpr int kTries = 7;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The largest total of work(thread) per second, every thread working at once.
template <typename Work> double best_rate(int num_threads, Work&& work) {
  const int threads = num_threads > 0 ? num_threads : num_cores();
  double best = 0.0;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    std::vector<double> done(static_cast<std::size_t>(threads));
    const auto start = std::chrono::steady_clock::now();
    parallel_for(threads, threads, [&](std::int64_t thread, int) {
      done[static_cast<std::size_t>(thread)] = work(thread);
    });
    const double total = std::accumulate(done.begin(), done.end(), 0.0);
    best = std::max(best, total / seconds_since(start));
  }
  return best;
}

}  // namespace

double probe_gflops(Target target, DType dtype, int num_threads) {
  const TileKernels& kernels = tile_kernels(target);
  const auto spin = dtype == DType::f32 ? kernels.f32.spin : kernels.bf16.spin;
  constexpr std::int64_t kRounds = 200'000;  // some milliseconds
  return best_rate(num_threads, [spin](std::int64_t) { return spin(kRounds); }) * 1e-9;
}

double probe_read_gbs(int num_threads) {
  constexpr std::int64_t kWords = std::int64_t{1} << 25;  // 256 MiB, more than an L3 cache
  const int threads = num_threads > 0 ? num_threads : num_cores();
  const std::vector<std::uint64_t> memory(static_cast<std::size_t>(kWords), 1);
  const std::int64_t share = kWords / threads;
  const auto read = [&](std::int64_t thread) {
    const std::uint64_t* words = memory.data() + thread * share;
    std::uint64_t sums[8] = {};  // independent, so that additions do not limit the loads
    for (std::int64_t i = 0; i + 8 <= share; i += 8) {
      for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
    }
    [[maybe_unused]] volatile std::uint64_t sink =
        std::accumulate(std::begin(sums), std::end(sums), std::uint64_t{0});
    return static_cast<double>(share) * sizeof(std::uint64_t);
  };
  return best_rate(threads, read) * 1e-9;
}

}  // namespace quire::cpu
