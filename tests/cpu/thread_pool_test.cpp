// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace quire::cpu {
namespace {

TEST(ThreadPool, EveryItemRunsOnceOnAWorkerInRange) {
  for (const int threads : {1, 2, 3, 16}) {
    std::vector<std::atomic<int>> runs(1000);
    std::atomic<int> out_of_range = 0;
    parallel_for(1000, threads, [&](std::int64_t item, int worker) {
      ++runs[static_cast<std::size_t>(item)];
      if (worker < 0 || worker >= threads) ++out_of_range;
    });
    for (const std::atomic<int>& count : runs) ASSERT_EQ(count, 1);
    EXPECT_EQ(out_of_range, 0);
  }
}

TEST(ThreadPool, NoTwoItemsShareAWorkerAtATime) {
  std::vector<std::atomic<int>> busy(4);
  std::atomic<int> clashes = 0;
  parallel_for(2000, 4, [&](std::int64_t, int worker) {
    std::atomic<int>& mine = busy[static_cast<std::size_t>(worker)];
    if (mine.fetch_add(1) != 0) ++clashes;
    std::this_thread::yield();
    mine.fetch_sub(1);
  });
  EXPECT_EQ(clashes, 0);
}

TEST(ThreadPool, ZeroItemsAndZeroThreads) {
  int runs = 0;
  parallel_for(0, 2, [&](std::int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 0);
  std::atomic<int> all = 0;
  parallel_for(7, 0, [&](std::int64_t, int) { ++all; });
  EXPECT_EQ(all, 7);
  EXPECT_GE(num_cores(), 1);
}

TEST(ThreadPool, ACallFromInsideAnItemRunsInPlace) {
  std::atomic<int> total = 0;
  parallel_for(4, 2, [&](std::int64_t, int) {
    const std::thread::id outer = std::this_thread::get_id();
    parallel_for(5, 2, [&](std::int64_t, int worker) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      EXPECT_EQ(worker, 0);
      ++total;
    });
  });
  EXPECT_EQ(total, 20);
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolSurvives) {
  for (const int threads : {1, 3}) {
    EXPECT_THROW(parallel_for(50, threads,
                              [](std::int64_t item, int) {
                                if (item == 20) throw std::runtime_error("item 20");
                              }),
                 std::runtime_error);
    std::atomic<int> runs = 0;
    parallel_for(50, threads, [&](std::int64_t, int) { ++runs; });
    EXPECT_EQ(runs, 50);
  }
}

TEST(ThreadPool, CallersFromSeveralThreadsTakeTurns) {
  std::atomic<int> total = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < 50; ++call) {
        parallel_for(10, 2, [&](std::int64_t, int) { ++total; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 50 * 10);
}

}  // namespace
}  // namespace quire::cpu
