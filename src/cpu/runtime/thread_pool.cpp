// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "cpu/runtime/cgroup_cores.h"
#include "cpu/runtime/float_environment.h"

namespace quire::cpu {
namespace {

thread_local bool is_inside_item = false;

// One parallel_for call. Lives on the caller's stack until every worker has left it.
struct Job {
  Job(std::int64_t items, ItemFunction item_function) : num_items(items), function(item_function) {}

  void work(int worker) {
    const FloatEnvironment environment;  // of a thread that may be the caller's own
    is_inside_item = true;
    for (;;) {
      const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= num_items) break;
      try {
        function(item, worker);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next.store(num_items, std::memory_order_relaxed);
      }
    }
    is_inside_item = false;
  }

  const std::int64_t num_items;
  const ItemFunction function;
  std::atomic<std::int64_t> next{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;
};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

class Pool {
 public:
  static Pool& instance() { return *owner(); }

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // One job at a time: callers from several threads queue here.
  void run(Job& job, int num_workers) {
    const std::lock_guard only_one(run_mutex_);
    grow(num_workers - 1);
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      num_invited_ = num_workers - 1;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    job.work(0);
    {
      // Whoever has not started by now is not waited for: the items are gone.
      const std::lock_guard lock(mutex_);
      job_ = nullptr;
      num_invited_ = 0;
    }
    for (int spin = 0; num_active_.load(std::memory_order_acquire) != 0; ++spin) {
      spin < kSpins ? relax() : std::this_thread::yield();
    }
  }

 private:
  // A child of fork() has the pool's memory and none of its threads. It leaves that alone and begins with a
  // pool of its own: joining the threads at its exit would never end.
  static std::unique_ptr<Pool>& owner() {
    static std::unique_ptr<Pool> pool = [] {
      pthread_atfork(nullptr, nullptr, [] {
        static_cast<void>(owner().release());
        owner() = std::make_unique<Pool>();
      });
      return std::make_unique<Pool>();
    }();
    return pool;
  }

  // Fewer where the system gives no more: an op works with the threads there are.
  void grow(int wanted) {
    while (static_cast<int>(threads_.size()) < wanted) {
      const int worker = static_cast<int>(threads_.size()) + 1;
      const std::uint64_t seen = generation_.load(std::memory_order_relaxed);
      try {
        threads_.emplace_back([this, worker, seen] { serve(worker, seen); });
      } catch (const std::system_error&) {
        return;
      }
    }
  }

  void serve(int worker, std::uint64_t seen) {
    for (;;) {
      seen = await_generation(seen);
      Job* job = nullptr;
      {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
        if (worker <= num_invited_) job = job_;
        if (job != nullptr) num_active_.fetch_add(1, std::memory_order_relaxed);
      }
      if (job == nullptr) continue;
      job->work(worker);
      num_active_.fetch_sub(1, std::memory_order_release);
    }
  }

  // Spins for a short while, because the next op of a layer follows within microseconds, then
  // sleeps.
  std::uint64_t await_generation(std::uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      const std::uint64_t current = generation_.load(std::memory_order_acquire);
      if (current != seen) return current;
      relax();
    }
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
    return generation_.load(std::memory_order_relaxed);
  }

  static constexpr int kSpins = 2000;  // some 50 µs

  std::mutex run_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> threads_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<int> num_active_{0};  // workers inside job_
  Job* job_ = nullptr;
  int num_invited_ = 0;
  bool stopping_ = false;
};

}  // namespace

int num_cores() {
  static const int count = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    const bool is_known = sched_getaffinity(0, sizeof(set), &set) == 0;
    const int allowed =
        is_known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
    const int granted = cgroup_cores("/").value_or(allowed);
    return std::clamp(std::min(allowed, granted), 1, kMaxThreads);
  }();
  return count;
}

Workers::Workers(int num_threads)
    : count(num_threads > 0 ? std::min(num_threads, kMaxThreads) : num_cores()), caller{} {}

Workers::Workers(const Context& context) : Workers(context.num_threads) {
  caller = context.parallel_for;
}

Workers Workers::at_most(std::int64_t num_items) const {
  Workers fewer = *this;
  if (num_items < count) fewer.count = num_items > 0 ? static_cast<int>(num_items) : 1;
  return fewer;
}

void parallel_for(std::int64_t num_items, const Workers& workers, ItemFunction function) {
  if (num_items <= 0) return;
  const Workers needed = workers.at_most(num_items);
  if (needed.count == 1 || is_inside_item) {
    for (std::int64_t item = 0; item < num_items; ++item) function(item, 0);
    return;
  }
  Job job(num_items, function);
  if (needed.caller.run != nullptr) {
    // A task is a worker, not an item: it brings its own scratch, and whichever tasks the caller's
    // threads start first take the items.
    const auto work = [](void* data, std::int64_t worker) {
      static_cast<Job*>(data)->work(static_cast<int>(worker));
    };
    needed.caller.run(needed.caller.user, needed.count, work, &job);
  } else {
    Pool::instance().run(job, needed.count);
  }
  if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace quire::cpu
