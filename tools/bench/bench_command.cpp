// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>

#include "tools/bench/bar_chart.h"
#include "tools/device_choice.h"
#include "tools/info/machine.h"
#include "tools/progress_bar.h"
#include "tools/text_file.h"

namespace quire::tools {
namespace {

constexpr KernelSpeed kReferenceSpeed{.flops = 0.1e9, .bytes = 0.03e9};
constexpr KernelSpeed kBackendSpeed{.flops = 5e9, .bytes = 1e9};
// A case may take this many times its budget before it is left out.
constexpr double kPatience = 5.0;
constexpr int kMinRuns = 3;

void print_header() {
  fmt::print("{:<44} {:<30} {:>12} {:>12} {:>9} {:>9} {:>8} {:<13} {}\n", "case", "kernel",
             "median us", "min us", "GB/s", "TFLOP/s", "share", "of ceiling", "against");
  flush_stdout();
}

void print_row(const BenchRow& row, const std::optional<PeerTime>& peer) {
  const std::string ratio =
      peer.has_value() ? fmt::format("{:.3g}x the time of {}", row.us / peer->us, peer->peer) : "";
  fmt::print("{:<44} {:<30} {:>12.1f} {:>12.1f} {:>9.3g} {:>9.3g} {:>7.3g}% {:<13} {}\n",
             row.case_name, row.kernel, row.us, row.us_min, row.gbs(), row.tflops(), row.percent(),
             row.floor().what, ratio);
  flush_stdout();
}

std::string draw_plot(const std::vector<BenchRow>& rows) {
  std::vector<Bar> bars;
  for (const BenchRow& row : rows) {
    bars.push_back(
        {.label = row.case_name,
         .value = row.percent(),
         .text = fmt::format("{:.3g}% of {}, {:.4g} us", row.percent(), row.floor().what, row.us)});
  }
  return draw_bar_chart("Percent of this machine's measured ceiling", bars);
}

// The best that each target's probe reached beside the rows.
void print_ceilings(const std::vector<BenchRow>& rows, const Machine& machine, int threads) {
  std::map<std::string, Ceiling> best;
  for (const BenchRow& row : rows) {
    const auto [place, is_new] = best.try_emplace(row.ceiling.target, row.ceiling);
    if (!is_new) place->second = best_of(place->second, row.ceiling);
  }
  fmt::print("\n{}, {} threads\n", machine.cpu, threads);
  for (const auto& [target, ceiling] : best) {
    fmt::print(
        "ceiling {}: read {:.1f} GB/s, f32 {:.0f} GFLOP/s, bf16 {:.0f} GFLOP/s, int8 {:.0f} "
        "GOP/s\n",
        target, ceiling.read_gbs, ceiling.f32_gflops, ceiling.bf16_gflops, ceiling.int8_gops);
  }
}

// One line per op for what is left out: how many, and why the first of them.
void print_left_out(const std::map<std::string, std::vector<std::string>>& reasons) {
  for (const auto& [op, list] : reasons) {
    fmt::print("left out  {:<22} {:>4} cases, the first: {}\n", op, list.size(), list.front());
  }
  if (!reasons.empty()) fmt::print("name a case to time it all the same\n\n");
  flush_stdout();
}

// The kernels of an op are asked about its first tiny case, because a model case is too large to build for a question.
std::map<std::string, KernelSpeed> guess_speeds(const std::vector<Case>& cases,
                                                const Context& context) {
  std::map<std::string, KernelSpeed> speeds;
  for (const Case& asked : cases) {
    if (!asked.has_tag("tiny") || speeds.contains(asked.op)) continue;
    const std::string kernel = asked.build(Layout::requested).supports(context).kernel;
    speeds[asked.op] = kernel.starts_with("reference") ? kReferenceSpeed : kBackendSpeed;
  }
  return speeds;
}

std::vector<Case> choose_cases(const BenchOptions& options, const Context& context,
                               std::int64_t memory_bytes) {
  const std::vector<Case> all = load_cases(options.folder);
  if (!options.cases.empty()) return select_cases(all, options.cases);
  std::vector<Case> chosen;
  std::map<std::string, KernelSpeed> speeds = guess_speeds(all, context);
  std::map<std::string, std::vector<std::string>> left_out;
  for (const Case& candidate : all) {
    if (!candidate.has_tag("model")) continue;
    const KernelSpeed speed = speeds.try_emplace(candidate.op, kReferenceSpeed).first->second;
    const auto reason = reason_to_skip(candidate, speed, options.seconds, memory_bytes);
    if (!reason.has_value()) chosen.push_back(candidate);
    if (reason.has_value()) left_out[candidate.op].push_back(candidate.name + " " + *reason);
  }
  print_left_out(left_out);
  return chosen;
}

// Where the rows go; opened before the first measurement, so that a name that cannot be written costs none.
struct RecordFiles {
  explicit RecordFiles(const BenchOptions& options)
      : json(open_if_named(options.json)), plot(open_if_named(options.plot)) {}

  OutputFile json;  // has each row as soon as it is measured
  OutputFile plot;

 private:
  static OutputFile open_if_named(const std::string& path) {
    return path.empty() ? OutputFile() : OutputFile(path);
  }
};

std::vector<BenchRow> time_all(const std::vector<Case>& cases, const BenchOptions& options,
                               const Context& context, const std::optional<PeerTimes>& peers,
                               OutputFile& json, int threads) {
  const ProgressBar progress(cases.size());
  std::vector<BenchRow> rows;
  for (const Case& timed : cases) {
    progress.show(rows.size(), timed.name);
    const BenchRow& row = rows.emplace_back(time_case(timed, context, options.seconds));
    progress.clear();
    print_row(row, peers.has_value() ? peers->find(row) : std::nullopt);
    json.write(to_json(row, threads).dump() + "\n");
  }
  return rows;
}

}  // namespace

std::optional<std::string> reason_to_skip(const Case& candidate, const KernelSpeed& speed,
                                          double seconds, std::int64_t memory_bytes) {
  const double footprint = candidate.problem->footprint();
  if (footprint > 0.5 * static_cast<double>(memory_bytes)) {
    return fmt::format("needs {:.3g} GB of memory", footprint * 1e-9);
  }
  const double flops = candidate.problem->flops();
  const double bytes = candidate.problem->bytes();
  const double estimate = std::max(flops / speed.flops, bytes / speed.bytes);
  if (estimate <= kPatience * seconds) return std::nullopt;
  return fmt::format("has {:.3g} GFLOP over {:.3g} MB, about {:.2g} s a run", flops * 1e-9,
                     bytes * 1e-6, estimate);
}

BenchRow time_case(const Case& timed, const Context& context, double seconds) {
  using Clock = std::chrono::steady_clock;
  Built built = timed.build(Layout::requested);
  BenchRow row;
  row.label = timed.label();
  row.parts = timed.peer_parts;
  row.case_name = timed.name;
  row.flops = timed.problem->flops();
  row.bytes = timed.problem->bytes();
  row.products = timed.problem->products();
  row.kernel = built.supports(context).kernel;
  if (row.kernel.empty()) throw std::runtime_error(timed.name + ": no kernel takes this case");
  const Ceiling before = measure_ceiling(target_of(row.kernel), context.num_threads);
  std::vector<double> times;
  const auto start = Clock::now();
  const auto elapsed = [&](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  // The first run warms caches and page tables and is not counted.
  built.run(context);
  while (times.size() < kMinRuns || (elapsed(start) < seconds && times.size() < 10'000)) {
    const auto begin = Clock::now();
    built.run(context);
    times.push_back(elapsed(begin) * 1e6);
  }
  std::sort(times.begin(), times.end());
  row.us = times[times.size() / 2];
  row.us_min = times.front();
  row.runs = static_cast<int>(times.size());
  row.ceiling = best_of(before, measure_ceiling(target_of(row.kernel), context.num_threads));
  return row;
}

int run_bench(const BenchOptions& options) {
  require_device(options.device);
  if (options.device == "cuda") return run_cuda_bench(options);
  const Machine machine = detect_machine();
  const int threads = options.threads > 0 ? options.threads : machine.cores;
  std::optional<PeerTimes> peers;
  if (!options.against.empty()) peers = PeerTimes::load(options.against);

  RecordFiles files(options);
  Context context;
  context.num_threads = options.threads;
  context.kernel = options.target;
  const std::vector<Case> cases = choose_cases(options, context, machine.memory_bytes);
  print_header();
  const std::vector<BenchRow> rows = time_all(cases, options, context, peers, files.json, threads);
  print_ceilings(rows, machine, threads);
  files.plot.write(draw_plot(rows));
  return 0;
}

}  // namespace quire::tools
