// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <numeric>
#include <vector>

#include "cpu/runtime/int8_probe.h"
#include "cpu/runtime/thread_pool.h"
#include "cpu/runtime/tile_kernels.h"

namespace quire::cpu {
namespace {

constexpr int kTries = 7;
// What one try reads; no try reads what another has read.
constexpr std::int64_t kSliceBytes = std::int64_t{64} << 20;
constexpr std::int64_t kSliceWords = kSliceBytes / static_cast<std::int64_t>(sizeof(std::uint64_t));

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The largest total of work(attempt, thread) per second, every thread working at once.
template <typename Work> double best_rate(int num_threads, Work&& work) {
  const int threads = num_threads > 0 ? num_threads : num_cores();
  double best = 0.0;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    std::vector<double> done(static_cast<std::size_t>(threads));
    const auto start = std::chrono::steady_clock::now();
    parallel_for(threads, threads, [&](std::int64_t thread, int) {
      done[static_cast<std::size_t>(thread)] = work(attempt, thread);
    });
    const double total = std::accumulate(done.begin(), done.end(), 0.0);
    best = std::max(best, total / seconds_since(start));
  }
  return best;
}

// Memory that is written once, front to back, and whose slices no cache holds afterwards: behind
// them lies as much as the largest cache takes.
class ColdMemory {
 public:
  ColdMemory() {
    const std::int64_t last_level = std::max<std::int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
    bytes_ = kTries * kSliceBytes + std::max(last_level, kSliceBytes);
    void* memory = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    // Large pages where the system gives them: the kernels' weights are on such pages too.
    madvise(memory, static_cast<std::size_t>(bytes_), MADV_HUGEPAGE);
    words_ = static_cast<std::uint64_t*>(memory);
    constexpr std::int64_t kPiece = (std::int64_t{2} << 20) / sizeof(std::uint64_t);
    const std::int64_t num_words = bytes_ / static_cast<std::int64_t>(sizeof(std::uint64_t));
    parallel_for((num_words + kPiece - 1) / kPiece, num_cores(), [&](std::int64_t piece, int) {
      const std::int64_t first = piece * kPiece;
      std::fill(words_ + first, words_ + std::min(first + kPiece, num_words), 1);
    });
  }
  ~ColdMemory() { munmap(words_, static_cast<std::size_t>(bytes_)); }
  ColdMemory(const ColdMemory&) = delete;
  ColdMemory& operator=(const ColdMemory&) = delete;

  const std::uint64_t* slice(int attempt) const { return words_ + attempt * kSliceWords; }

 private:
  std::int64_t bytes_;
  std::uint64_t* words_;
};

// Several places at once: a prefetcher follows each only to the end of its page, so that one alone
// leaves a core waiting for most of its time.
std::uint64_t read_streams(const std::uint64_t* words, std::int64_t count) {
  constexpr int kStreams = 8;
  constexpr int kLine = 8;            // words of a cache line
  constexpr int kAhead = 16 * kLine;  // one KiB
  const std::int64_t part = count / kStreams / kLine * kLine;
  std::uint64_t sums[kLine] = {};  // independent, so that additions do not limit the loads
  for (std::int64_t i = 0; i < part; i += kLine) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::uint64_t* line = words + stream * part + i;
      __builtin_prefetch(line + kAhead);
      for (int j = 0; j < kLine; ++j) sums[j] += line[j];
    }
  }
  return std::accumulate(std::begin(sums), std::end(sums), std::uint64_t{0});
}

}  // namespace

double probe_gflops(Target target, DType dtype, int num_threads) {
  const TileKernels& kernels = tile_kernels(target);
  const auto spin = dtype == DType::f32  ? kernels.f32.spin
                    : dtype == DType::i8 ? int8_spin(target)
                                         : kernels.bf16.spin;
  constexpr std::int64_t kRounds = 100'000;  // some milliseconds
  return best_rate(num_threads, [spin](int, std::int64_t) { return spin(kRounds); }) * 1e-9;
}

double probe_read_gbs(int num_threads) {
  const int threads = num_threads > 0 ? num_threads : num_cores();
  const ColdMemory memory;
  const std::int64_t share = kSliceWords / threads;
  const auto read = [&](int attempt, std::int64_t thread) {
    [[maybe_unused]] volatile std::uint64_t sink =
        read_streams(memory.slice(attempt) + thread * share, share);
    return static_cast<double>(share) * sizeof(std::uint64_t);
  };
  return best_rate(threads, read) * 1e-9;
}

}  // namespace quire::cpu
