// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
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

TEST(ThreadPool, ThreadsAreBounded) {
  EXPECT_EQ(Workers(1'000'000).count, kMaxThreads);
  EXPECT_LE(num_cores(), kMaxThreads);
}

// Restores what it was: the tests run with all calls shared.
struct Sharing {
  explicit Sharing(bool is_on) { share_short_calls(is_on); }
  ~Sharing() { share_short_calls(true); }
  Sharing(const Sharing&) = delete;
};

TEST(ShortCalls, HaveNoMoreWorkersThanFindEnoughToDo) {
  const Sharing off(false);
  const Workers all(16);
  EXPECT_EQ(all.for_nanoseconds(0.0).count, 1);
  EXPECT_EQ(all.for_nanoseconds(2e3).count, 1);
  EXPECT_EQ(all.for_nanoseconds(1e9).count, 16);
  const int some = all.for_nanoseconds(20e3).count;
  EXPECT_GT(some, 1);
  EXPECT_LT(some, 16);
  EXPECT_EQ(Workers(1).for_nanoseconds(1e9).count, 1);
  share_short_calls(true);
  EXPECT_EQ(all.for_nanoseconds(2e3).count, 16);
}

TEST(ShortCalls, InviteNobody) {
  const Sharing off(false);
  parallel_for(100, 4, [](std::int64_t, int) {});  // the threads exist and are awake
  const std::thread::id own = std::this_thread::get_id();
  int runs = 0;
  parallel_for(1000, Workers(4).for_nanoseconds(1e3), [&](std::int64_t, int worker) {
    EXPECT_EQ(std::this_thread::get_id(), own);
    EXPECT_EQ(worker, 0);
    ++runs;
  });
  EXPECT_EQ(runs, 1000);
}

TEST(ShortCalls, WakeNobody) {
  const Sharing off(false);
  const std::thread::id own = std::this_thread::get_id();
  for (int call = 0; call < 5; ++call) {
    parallel_for(100, 4, [](std::int64_t, int) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // they sleep again
    parallel_for(64, Workers(4).for_nanoseconds(30e3), [&](std::int64_t, int) {
      std::this_thread::sleep_for(std::chrono::microseconds(10));
      EXPECT_EQ(std::this_thread::get_id(), own);
    });
  }
}

TEST(LongCalls, WakeThreadsThatSleep) {
  for (int call = 0; call < 3; ++call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::vector<std::atomic<int>> found(16);
    std::atomic<int> workers = 0;
    // An item ends when every worker has had one, so all must come.
    parallel_for(16, 16, [&](std::int64_t, int worker) {
      if (found.at(static_cast<std::size_t>(worker)).fetch_add(1) == 0) ++workers;
      while (workers < 16) std::this_thread::yield();
    });
    EXPECT_EQ(workers, 16);
  }
}

// Calls of every length between sleeping, spinning and late workers: each item once, and all of them at the end.
TEST(ThreadPool, CallsAfterPausesLoseNothing) {
  const Sharing off(false);
  for (int call = 0; call < 400; ++call) {
    const int items = 1 + call % 7;
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(items));
    const double nanoseconds = call % 3 == 0 ? 1e9 : 4e3 * (call % 50);
    parallel_for(items, Workers(2 + call % 6).for_nanoseconds(nanoseconds),
                 [&](std::int64_t item, int) { ++runs[static_cast<std::size_t>(item)]; });
    for (const std::atomic<int>& count : runs) ASSERT_EQ(count, 1);
    std::this_thread::sleep_for(std::chrono::microseconds(call % 5 == 0 ? 700 : 20 * (call % 9)));
  }
}

// Threads need address space for their stacks; a child process has little left, and the op goes on.
TEST(ThreadPool, WorksWithTheThreadsThatTheSystemGives) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space of their own";
#endif
  const auto run_short_of_memory = [] {
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto limit = static_cast<rlim_t>(pages * getpagesize() + (std::int64_t{64} << 20));
    const rlimit few{.rlim_cur = limit, .rlim_max = limit};
    if (setrlimit(RLIMIT_AS, &few) != 0) _exit(2);
    std::atomic<int> runs = 0;
    parallel_for(2000, kMaxThreads, [&](std::int64_t, int) { ++runs; });
    parallel_for(2000, kMaxThreads, [&](std::int64_t, int) { ++runs; });
    _exit(runs == 4000 ? 0 : 1);
  };
  EXPECT_EXIT(run_short_of_memory(), testing::ExitedWithCode(0), "");
}

// A caller's pool of the simplest kind: some tasks on threads of their own, the others here, last
// first.
struct CallersThreads {
  static void run(void* user, std::int64_t tasks, ParallelFor::Task task, void* data) {
    auto& self = *static_cast<CallersThreads*>(user);
    ++self.calls;
    self.most_tasks = std::max(self.most_tasks, tasks);
    std::vector<std::thread> threads;
    for (std::int64_t index = tasks - 1; index >= 0; --index) {
      if (self.is_parallel && index % 2 == 0) {
        threads.emplace_back([=] { task(data, index); });
      } else {
        task(data, index);
      }
    }
    for (std::thread& thread : threads) thread.join();
  }
  Context context(int num_threads) {
    Context context;
    context.num_threads = num_threads;
    context.parallel_for = {.run = run, .user = this};
    return context;
  }

  bool is_parallel = true;
  int calls = 0;
  std::int64_t most_tasks = 0;
};

TEST(CallersPool, DoesEveryItemOnceOnWorkersInRange) {
  for (const bool is_parallel : {false, true}) {
    for (const int threads : {2, 3, 16}) {
      CallersThreads caller;
      caller.is_parallel = is_parallel;
      std::vector<std::atomic<int>> runs(100);
      std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
      std::atomic<int> clashes = 0;
      parallel_for(100, caller.context(threads), [&](std::int64_t item, int worker) {
        std::atomic<int>& mine = busy.at(static_cast<std::size_t>(worker));
        if (mine.fetch_add(1) != 0) ++clashes;
        ++runs[static_cast<std::size_t>(item)];
        mine.fetch_sub(1);
      });
      for (const std::atomic<int>& count : runs) ASSERT_EQ(count, 1);
      EXPECT_EQ(clashes, 0);
      EXPECT_EQ(caller.calls, 1);
      EXPECT_EQ(caller.most_tasks, threads);
    }
  }
}

TEST(CallersPool, IsNotAskedForOneWorkerNorFromInsideATask) {
  CallersThreads caller;
  int runs = 0;
  parallel_for(5, caller.context(1), [&](std::int64_t, int) { ++runs; });
  parallel_for(1, caller.context(4), [&](std::int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 6);
  EXPECT_EQ(caller.calls, 0);
  std::atomic<int> inner = 0;
  parallel_for(4, caller.context(2), [&](std::int64_t, int) {
    parallel_for(3, caller.context(2), [&](std::int64_t, int) { ++inner; });
  });
  EXPECT_EQ(inner, 12);
  EXPECT_EQ(caller.calls, 1);
}

TEST(CallersPool, IsNotAskedForAShortCall) {
  const Sharing off(false);
  CallersThreads caller;
  int runs = 0;
  parallel_for(100, Workers(caller.context(4)).for_nanoseconds(1e3),
               [&](std::int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 100);
  EXPECT_EQ(caller.calls, 0);
}

TEST(CallersPool, GetsNoExceptionButTheCallerOfTheOpDoes) {
  CallersThreads caller;
  EXPECT_THROW(parallel_for(50, caller.context(3),
                            [](std::int64_t item, int) {
                              if (item == 20) throw std::runtime_error("item 20");
                            }),
               std::runtime_error);
  EXPECT_EQ(caller.calls, 1);
}

}  // namespace
}  // namespace quire::cpu
