// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "cpu/runtime/cgroup_cores.h"
#include "cpu/runtime/float_environment.h"

namespace quire::cpu {
namespace {

// Nanoseconds. On two cores of a Sapphire Rapids, as a virtual machine, a thread that sleeps begins to work some 15 µs
// after it was called, and one that spins after 3 at most.
constexpr double kLeastShare = 5e3;         // of work that is worth another worker
constexpr double kWakingPays = 60e3;        // of work that is worth waking one
constexpr double kShortPatience = 50e3;     // that a worker spins at least
constexpr double kLongestPatience = 250e3;  // and at most
constexpr double kPatiencePerWork = 4.0;    // and no more than so many times what it would spin for

thread_local bool is_inside_item = false;

bool is_asked_for_by_environment() {
  const char* value = std::getenv("QUIRE_SHARE_SHORT_CALLS");
  return value != nullptr && std::string_view(value) == "1";
}

std::atomic<bool>& sharing_switch() {
  static std::atomic<bool> is_on = is_asked_for_by_environment();
  return is_on;
}

double nanoseconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::nano>(now).count();
}

// One parallel_for call. Lives on the caller's stack until every worker has left it.
struct Job {
  Job(std::int64_t items, ItemFunction item_function) : num_items(items), function(item_function) {}

  // close: called by whoever takes the last item.
  template <typename Close> void work(int worker, Close&& close) {
    const FloatEnvironment environment;  // of a thread that may be the caller's own
    is_inside_item = true;
    for (;;) {
      const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= num_items) break;
      if (item == num_items - 1) close();
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

// How calls follow each other. Threads are woken for a long call, or for a train of short ones: those that follow so
// soon that spinning for the next costs little beside them.
class Rhythm {
 public:
  // A call begins. Whether it is worth waking threads.
  bool begin(double nanoseconds) {
    const double gap = nanoseconds_now() - last_end_;
    const bool follows = gap < kLongestPatience && gap < kPatiencePerWork * nanoseconds;
    train_ = follows ? train_ + nanoseconds : nanoseconds;
    const double forgotten = patience_.load(std::memory_order_relaxed) * 0.875;
    const double patience = follows ? std::max(forgotten, 2.0 * gap) : forgotten;
    patience_.store(std::clamp(patience, kShortPatience, kLongestPatience),
                    std::memory_order_relaxed);
    return train_ >= kWakingPays;
  }
  void end() { last_end_ = nanoseconds_now(); }

  // How long a worker spins after its work, in ns.
  double patience() const { return patience_.load(std::memory_order_relaxed); }

 private:
  double last_end_ = 0.0;
  double train_ = 0.0;  // ns of work in the calls that have followed each other
  std::atomic<double> patience_{kShortPatience};
};

// What the workers watch, in one word: the number of the job, which of them it invites (1 … invited), whether those
// wake each other, and how many are at it. A worker joins by a compare-and-swap, so none joins a job that has ended.
class Gate {
 public:
  struct View {
    std::uint32_t job() const { return static_cast<std::uint32_t>(word >> 32); }
    bool wakes() const { return (word & kWakes) != 0; }
    int invited() const { return static_cast<int>(word >> kInvitedShift & kFew); }
    int active() const { return static_cast<int>(word & kFew); }

    std::uint64_t word;
  };

  View view() const { return {word_.load(std::memory_order_seq_cst)}; }
  void open(int invited, bool wakes) {
    const std::uint64_t job = view().job() + std::uint64_t{1};
    word_.store(
        job << 32 | (wakes ? kWakes : 0) | static_cast<std::uint64_t>(invited) << kInvitedShift,
        std::memory_order_seq_cst);
  }
  // Nobody joins any more.
  void close() { word_.fetch_and(~(kFew << kInvitedShift), std::memory_order_acq_rel); }
  bool join(int worker, View seen) {
    std::uint64_t word = seen.word;
    while (View{word}.job() == seen.job() && worker <= View{word}.invited()) {
      if (word_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }
  void leave() { word_.fetch_sub(1, std::memory_order_release); }

 private:
  static constexpr std::uint64_t kFew = 0x7fff;
  static constexpr int kInvitedShift = 16;
  static constexpr std::uint64_t kWakes = std::uint64_t{1} << 31;
  static_assert(kMaxThreads <= static_cast<int>(kFew));

  std::atomic<std::uint64_t> word_{0};
};

class Pool {
 public:
  static Pool& instance() { return *owner(); }

  ~Pool() {
    is_stopping_.store(true, std::memory_order_seq_cst);
    gate_.open(0, /*wakes=*/false);
    for (const auto& seat : seats_) seat->wake();
    for (const auto& seat : seats_) seat->thread.join();
  }

  // One job at a time: callers from several threads queue here.
  void run(Job& job, int num_workers, double nanoseconds) {
    const std::lock_guard only_one(run_mutex_);
    const bool wakes =
        rhythm_.begin(nanoseconds) || sharing_switch().load(std::memory_order_relaxed);
    if (wakes) grow(num_workers - 1);
    const int invited = std::min(num_workers - 1, static_cast<int>(seats_.size()));
    const bool is_shared = invited > 0 && (wakes || num_awake_.load(std::memory_order_relaxed) > 0);
    if (is_shared) {
      job_ = &job;
      gate_.open(invited, wakes);
      if (wakes) wake_next(0, invited);
    }
    job.work(0, [&] { gate_.close(); });
    if (is_shared) {
      // Whoever has not started by now is not waited for: the items are gone.
      gate_.close();
      for (int spin = 0; gate_.view().active() != 0; ++spin) {
        spin < kSpins ? relax() : std::this_thread::yield();
      }
    }
    rhythm_.end();
  }

 private:
  // A worker's own place.
  struct alignas(64) Seat {
    void wake() {
      if (!is_asleep.load(std::memory_order_seq_cst)) return;
      { const std::lock_guard lock(mutex); }  // it waits already, or looks at the gate once more
      condition.notify_one();
    }

    std::mutex mutex;
    std::condition_variable condition;
    std::atomic<bool> is_asleep{false};
    std::thread thread;
  };

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
    while (static_cast<int>(seats_.size()) < wanted) {
      const int worker = static_cast<int>(seats_.size()) + 1;
      auto seat = std::make_unique<Seat>();
      Seat& its_seat = *seat;
      const std::uint32_t seen = gate_.view().job();
      // Others read seats_ while they wake each other, but not now: no job is open.
      seats_.push_back(std::move(seat));
      try {
        num_awake_.fetch_add(1, std::memory_order_relaxed);
        its_seat.thread =
            std::thread([this, worker, seen, &its_seat] { serve(worker, seen, its_seat); });
      } catch (const std::system_error&) {
        num_awake_.fetch_sub(1, std::memory_order_relaxed);
        seats_.pop_back();
        return;
      }
    }
  }

  // Waking takes longer than starting, so that it goes by a tree: the caller wakes two workers, each of these two more.
  void wake_next(int worker, int invited) {
    for (int next = 2 * worker + 1; next <= std::min(2 * worker + 2, invited); ++next) {
      seats_[static_cast<std::size_t>(next - 1)]->wake();
    }
  }

  void serve(int worker, std::uint32_t seen, Seat& seat) {
    double spins_until = nanoseconds_now() + kShortPatience;
    for (;;) {
      const Gate::View view = await_job(seen, spins_until, seat);
      if (is_stopping_.load(std::memory_order_seq_cst)) return;
      seen = view.job();
      if (!gate_.join(worker, view)) continue;
      if (view.wakes()) wake_next(worker, view.invited());
      job_->work(worker, [&] { gate_.close(); });
      gate_.leave();
      spins_until = nanoseconds_now() + rhythm_.patience();
    }
  }

  // Spins for a while, because the next op of a layer follows soon, then sleeps. It never yields: where cores are short,
  // a thread that sleeps is woken within microseconds, one that has yielded waits for its turn.
  Gate::View await_job(std::uint32_t seen, double spins_until, Seat& seat) {
    do {
      for (int spin = 0; spin < 16; ++spin, relax()) {
        const Gate::View view = gate_.view();
        if (view.job() != seen) return view;
      }
    } while (nanoseconds_now() < spins_until);
    std::unique_lock lock(seat.mutex);
    num_awake_.fetch_sub(1, std::memory_order_relaxed);
    // Whoever opens the gate looks at the seats afterwards: one of the two sees the other.
    seat.is_asleep.store(true, std::memory_order_seq_cst);
    seat.condition.wait(lock, [&] { return gate_.view().job() != seen; });
    seat.is_asleep.store(false, std::memory_order_relaxed);
    num_awake_.fetch_add(1, std::memory_order_relaxed);
    return gate_.view();
  }

  static constexpr int kSpins = 2000;

  std::mutex run_mutex_;
  Rhythm rhythm_;
  Gate gate_;
  Job* job_ = nullptr;                        // of the gate
  std::vector<std::unique_ptr<Seat>> seats_;  // of workers 1, 2, …
  std::atomic<int> num_awake_{0};
  std::atomic<bool> is_stopping_{false};
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

Workers Workers::for_nanoseconds(double needed) const {
  Workers fewer = *this;
  fewer.nanoseconds = needed;
  if (sharing_switch().load(std::memory_order_relaxed)) return fewer;
  const double most = std::max(1.0, needed / kLeastShare);
  if (most < fewer.count) fewer.count = static_cast<int>(most);
  return fewer;
}

void share_short_calls(bool is_on) {
  sharing_switch().store(is_on, std::memory_order_relaxed);
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
      static_cast<Job*>(data)->work(static_cast<int>(worker), [] {});
    };
    needed.caller.run(needed.caller.user, needed.count, work, &job);
  } else {
    Pool::instance().run(job, needed.count, needed.nanoseconds);
  }
  if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace quire::cpu
