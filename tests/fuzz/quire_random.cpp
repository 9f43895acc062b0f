// SPDX-License-Identifier: Apache-2.0
// Random problems of every op against the oracle, by the rules of `quire check`:
//   quire_random --op flash_attention --count 100000 --seed 7
//   quire_random --op all --device cuda --count 10000 --json records.json
// A failure prints the line that runs it again.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "fuzz/problems/random_case.h"
#include "fuzz/problems/random_check.h"
#include "tools/device_choice.h"
#include "tools/info/machine.h"

namespace quire::test {
namespace {

struct Options {
  std::vector<std::string> ops{"all"};
  std::vector<std::string> targets{"all"};
  std::string device = "cpu";
  std::uint64_t seed = 1;
  std::int64_t count = 1000;
  std::int64_t index = -1;
  int threads = 0;
  std::string json;
  std::string commit;       // of the record; empty: as configured
  double patience = 120.0;  // seconds for one problem
  bool tiles = false;
  bool plain = false;
};

// The line that runs a problem again; without a target, on all that this run has.
std::string rerun(const Options& options, const std::string& op, std::int64_t index,
                  const std::string& target = "") {
  return fmt::format("quire_random --op {}{} --device {}{}{} --seed {} --index {}", op,
                     target.empty() ? "" : " --target " + target, options.device,
                     options.tiles ? " --tiles" : "", options.plain ? " --plain" : "", options.seed,
                     index);
}

struct Count {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t skipped = 0;
};

class Tally {
 public:
  explicit Tally(const Options& options) : options_(options) {}

  void add(const std::string& op, std::int64_t index, const std::string& target,
           const tools::Verdict& verdict, const std::function<std::string()>& describe) {
    const std::lock_guard lock(mutex_);
    Count& count = counts_[op][target];
    if (verdict.outcome == tools::Outcome::passed) ++count.passed;
    if (verdict.outcome == tools::Outcome::skipped) ++count.skipped;
    if (verdict.outcome != tools::Outcome::failed) return;
    constexpr std::int64_t kShown = 20;
    if (++count.failed > kShown && options_.index < 0) return;
    fmt::print("FAILED {} {}\n    {}\n    {}\n", op,
               verdict.kernel.empty() ? target : verdict.kernel, verdict.faults.front(),
               describe());
    fmt::print("    {}\n", rerun(options_, op, index, target));
    std::fflush(stdout);
  }

  Count total() const {
    Count sum;
    for (const auto& [op, targets] : counts_) {
      for (const auto& [target, count] : targets) {
        sum.passed += count.passed;
        sum.failed += count.failed;
        sum.skipped += count.skipped;
      }
    }
    return sum;
  }

  nlohmann::json json() const {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [op, targets] : counts_) {
      for (const auto& [target, count] : targets) {
        object[op][target] = {
            {"passed", count.passed}, {"failed", count.failed}, {"skipped", count.skipped}};
      }
    }
    return object;
  }

 private:
  const Options& options_;
  std::mutex mutex_;
  std::map<std::string, std::map<std::string, Count>> counts_;
};

// Ends the run where one problem never ends, and says which: a kernel that hangs holds every thread of the process, and
// nobody comes back to report it.
class Watchdog {
 public:
  Watchdog(const Options& options, const std::string& op)
      : options_(options),
        op_(op),
        begun_(static_cast<std::size_t>(options.threads)),
        guard_([this](const std::stop_token& stop) { watch(stop); }) {}

  // A thread's next problem.
  void begin(int thread, std::int64_t index) {
    const std::lock_guard lock(mutex_);
    begun_[static_cast<std::size_t>(thread)] = {.index = index, .at = Clock::now()};
  }
  void end(int thread) { begin(thread, -1); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Begun {
    std::int64_t index = -1;  // -1: none
    Clock::time_point at{};
  };

  void watch(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const std::lock_guard lock(mutex_);
      for (const Begun& begun : begun_) {
        const std::chrono::duration<double> seconds = Clock::now() - begun.at;
        if (begun.index >= 0 && seconds.count() > options_.patience) give_up();
      }
    }
  }

  // Not exit(): what it would wait for may be what hangs. Others wait behind the one that hangs, so all are named, the
  // one that began first before the others.
  [[noreturn]] void give_up() {
    std::ranges::sort(begun_, {}, &Begun::at);
    for (const Begun& begun : begun_) {
      if (begun.index < 0) continue;
      fmt::print("STUCK {}\n    {}\n", op_, rerun(options_, op_, begun.index));
    }
    std::fflush(stdout);
    std::_Exit(3);
  }

  const Options& options_;
  const std::string& op_;
  std::mutex mutex_;
  std::vector<Begun> begun_;
  std::jthread guard_;
};

void check_one(const Options& options, const std::string& op, std::int64_t index, Tally& tally) {
  Draw draw = draw_of(options.seed, index, options.tiles ? Extent::tiles : Extent::small);
  try {
    RandomProblem problem = draw_problem(op, draw);
    if (options.plain) problem.edits = {}, problem.has_gaps = false;
    if (options.index >= 0) {
      fmt::print("{}\n", problem.describe());
      std::fflush(stdout);  // before a kernel that may hang
    }
    for (const auto& [target, verdict] : check_random(problem, options.targets, options.device)) {
      tally.add(op, index, target, verdict, [&] { return problem.describe(); });
    }
  } catch (const std::exception& error) {
    tally.add(op, index, "generator", {.outcome = tools::Outcome::failed, .faults = {error.what()}},
              [&] { return std::string("not built"); });
  }
}

void check_op(const Options& options, const std::string& op, Tally& tally) {
  Watchdog watchdog(options, op);
  if (options.index >= 0) {
    watchdog.begin(0, options.index);
    check_one(options, op, options.index, tally);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::int64_t> next{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] {
      for (std::int64_t index = next++; index < options.count; index = next++) {
        watchdog.begin(i, index);
        check_one(options, op, index, tally);
      }
      watchdog.end(i);
    });
  }
  threads.clear();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{:<24} {} problems, {:.0f} a second\n", op, options.count,
             static_cast<double>(options.count) / std::max(seconds.count(), 1e-9));
  std::fflush(stdout);
}

void fill_in(Options& options) {
  if (options.ops == std::vector<std::string>{"all"}) options.ops = tools::known_ops();
  const bool is_cuda = options.device == "cuda";
  if (options.targets == std::vector<std::string>{"all"}) {
    options.targets = is_cuda ? std::vector<std::string>{"cuda"} : targets_of_this_machine();
  }
  options.tiles = options.tiles || is_cuda;
  if (options.threads <= 0) {
    options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }
  tools::require_device(options.device);
}

int run(Options options) {
  fill_in(options);
  // Scratch that an op reads before it writes it must not be right by luck.
  setenv("QUIRE_POISON_SCRATCH", "1", /*overwrite=*/0);
  // Threads are to meet in problems that are short.
  setenv("QUIRE_SHARE_SHORT_CALLS", "1", /*overwrite=*/0);
  std::ofstream record;
  if (!options.json.empty()) {
    record.open(options.json);
    if (!record) throw std::runtime_error("--json " + options.json + ": cannot be written");
  }
  Tally tally(options);
  for (const std::string& op : options.ops) check_op(options, op, tally);
  const Count total = tally.total();
  if (record.is_open()) {
    const nlohmann::json object{
        {"seed", options.seed},
        {"count", options.count},
        {"device", options.device},
        {"machine", tools::detect_machine().describe()},
        {"compiler", tools::compiler_name()},
        {"commit", options.commit.empty() ? tools::build_commit() : options.commit},
        {"ops", tally.json()}};
    record << object.dump(1) << "\n";
    record.flush();
    if (!record)
      throw std::runtime_error("--json " + options.json + ": could not be written whole");
  }
  if (total.skipped > 0)
    fmt::print("{} skipped: no kernel of the target takes them\n", total.skipped);
  fmt::print("{} passed, {} failed\n", total.passed, total.failed);
  return total.passed > 0 && total.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace quire::test

int main(int argc, char** argv) {
  CLI::App app{"Random problems of every op against the oracle"};
  quire::test::Options options;
  app.add_option("--op", options.ops, "ops, or all")->delimiter(',');
  app.add_option("--target", options.targets, "beginnings of kernel names (cpu/neon), or all")
      ->delimiter(',');
  app.add_option("--device", options.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--seed", options.seed, "another one, other problems");
  app.add_option("--count", options.count, "problems of each op");
  app.add_option("--index", options.index, "only this one of them, and what it is");
  app.add_option("--threads", options.threads, "problems at a time; 0: one for each core");
  app.add_option("--json", options.json, "a file for the counts");
  app.add_option("--commit", options.commit, "what the record says was built, if not HEAD");
  app.add_option("--patience", options.patience,
                 "seconds for one problem before the run ends with 3")
      ->check(CLI::PositiveNumber);
  app.add_flag("--tiles", options.tiles, "problems as large as a GPU's tiles; always with cuda");
  app.add_flag("--plain", options.plain, "only numbers that cases hold, and no gaps");
  CLI11_PARSE(app, argc, argv);
  try {
    return quire::test::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire_random: {}\n", error.what());
    return 2;
  }
}
