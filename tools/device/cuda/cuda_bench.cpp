// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <thread>

#include "cuda/common/runtime/device_facts.h"
#include "tools/device/cuda.h"
#include "tools/device/cuda/device_memory.h"
#include "tools/device/cuda/kernels.h"
#include "tools/device/cuda/stopwatch.h"
#include "tools/device/cuda/workspace.h"
#include "tools/info/machine.h"
#include "tools/progress_bar.h"
#include "tools/text_file.h"

namespace quire::tools {
namespace {

// Cases in a row heat the card: its clock falls by up to a tenth, for the later ones only. A peer's
// row begins after its data were made and its code compiled, so each of ours begins rested too.
constexpr std::chrono::milliseconds kRest{200};

std::vector<Case> choose_cases(const BenchOptions& options) {
  std::vector<Case> cases = load_cases(options.folder);
  if (!options.cases.empty()) return select_cases(cases, options.cases);
  std::erase_if(cases, [](const Case& candidate) { return !candidate.has_tag("model"); });
  return cases;
}

// What ops that only move data are held against. Cases that move as many bytes share a copy.
class SameCopies {
 public:
  explicit SameCopies(const Stopwatch& stopwatch) : stopwatch_(stopwatch) {}

  std::optional<Timings> of(const OpCase& problem) {
    if (!problem.only_moves_data()) return std::nullopt;
    const auto bytes = static_cast<std::int64_t>(problem.bytes());
    const auto [place, is_new] = timed_.try_emplace(bytes);
    if (is_new) place->second = stopwatch_.time_copy(bytes);
    return place->second;
  }

 private:
  const Stopwatch& stopwatch_;
  std::map<std::int64_t, Timings> timed_;
};

// A row, or why there is none: no kernel of the GPU takes the case.
struct Timed {
  std::optional<DeviceRow> row{};
  std::string refusal{};
};

// A case in the card's memory, with what its calls need.
struct OnGpu {
  OnGpu(const Case& timed, const BenchOptions& options, const cuda::Stream& stream)
      : built(timed.build(Layout::deferred)), memory(built.memory, stream) {
    memory.upload();
    calls = built.relocated(memory.relocation());
    context.stream = stream.get();
    packed.emplace(calls.packed_bytes);
    if (calls.pack) calls.pack(packed->data(), context);
    context.kernel = options.target;
    plan = calls.supports(context);
    workspace.emplace(plan.workspace_bytes, stream);
    context = workspace->in(context);
    stream.wait();
  }

  Built built;
  DeviceMemory memory;
  Calls calls{};
  std::optional<cuda::DeviceBuffer> packed{};
  std::optional<Workspace> workspace{};
  Context context{};
  Plan plan{};
};

Timed time_on_gpu(const Case& timed, const BenchOptions& options, const cuda::Stream& stream,
                  const Stopwatch& stopwatch, SameCopies& copies) {
  const OnGpu there(timed, options, stream);
  if (!there.plan.supported()) return {.refusal = there.plan.describe()};
  std::this_thread::sleep_for(kRest);
  return {.row = DeviceRow{.label = timed.label(),
                           .parts = timed.peer_parts,
                           .case_name = timed.name,
                           .kernel = there.plan.kernel,
                           .flops = timed.problem->flops(),
                           .bytes = timed.problem->bytes(),
                           .own = stopwatch.time([&] { there.calls.run(there.context); }),
                           .same_copy = copies.of(*timed.problem)}};
}

// Microseconds of the host for each of some calls, the least of many batches: few enough of a call in a row that the
// stream's queue is never full. The calls take turns, so that the processor's clock is the same for all of them.
std::vector<double> host_us(const cuda::Stream& stream,
                            const std::vector<std::function<void()>>& calls) {
  constexpr int kBatches = 60;
  constexpr int kCalls = 50;
  std::vector<double> least(calls.size(), std::numeric_limits<double>::infinity());
  for (int batch = 0; batch < kBatches; ++batch) {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) calls[c]();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - start;
      least[c] = std::min(least[c], took.count() / kCalls);
      stream.wait();
    }
  }
  return least;
}

// Calls that validate and plan only, whole ones, prepared ones, and launches of empty kernels, which are the driver's
// part of each kernel that a call starts: one without parameters, one with as many bytes of them and of shared memory as
// a kernel of attention has.
int bench_host(const std::vector<Case>& cases, const BenchOptions& options,
               const DeviceIdentity& identity, OutputFile& file) {
  constexpr std::array kColumns{"launch_us", "large_launch_us", "plan_us", "call_us",
                                "prepared_us"};
  const cuda::Stream stream;
  fmt::print("{}\n{:<52} {:<30} {:>9} {:>9} {:>9} {:>9} {:>9}\n", identity.name, "case", "kernel",
             "launch us", "large", "plan us", "call us", "prepared");
  for (const Case& timed : cases) {
    const OnGpu there(timed, options, stream);
    if (!there.plan.supported() || !there.calls.prepare) continue;
    const Calls::Run prepared = there.calls.prepare(there.context);
    const std::vector<double> us = host_us(
        stream, {[&] { do_nothing(stream.get()); }, [&] { do_nothing_large(stream.get()); },
                 [&] { there.calls.supports(there.context); },
                 [&] { there.calls.run(there.context); }, [&] { prepared(there.context); }});
    fmt::print("{:<52} {:<30} {:>9.2f}\n", timed.name, there.plan.kernel, fmt::join(us, " "));
    flush_stdout();
    nlohmann::json row{{"case", timed.name},
                       {"kernel", there.plan.kernel},
                       {"device", identity.name},
                       {"commit", identity.commit}};
    for (std::size_t c = 0; c < us.size(); ++c) row[kColumns[c]] = us[c];
    file.write(row.dump() + "\n");
  }
  return 0;
}

std::optional<PeerTime> find_peer(const std::optional<PeerTimes>& peers, const DeviceRow& row) {
  if (!peers.has_value()) return std::nullopt;
  BenchRow asked;
  asked.label = row.label;
  asked.parts = row.parts;
  return peers->find(asked);
}

void print_header() {
  fmt::print("{:<52} {:<30} {:>10} {:>10} {:>9} {:>9} {:>8} {:>8}  {}\n", "case", "kernel",
             "dirty us", "clean us", "GB/s", "TFLOP/s", "of read", "of copy", "against");
  flush_stdout();
}

void print_row(const nlohmann::json& row) {
  std::string against;
  if (row.contains("us_same_copy")) {
    against = fmt::format("{:.1f}% (clean {:.1f}%) of a copy of as many bytes, {:.2f} us",
                          row["percent_of_same_copy"].get<double>(),
                          row["percent_of_same_copy_clean"].get<double>(),
                          row["us_same_copy"].get<double>());
  }
  if (row.contains("against")) {
    against = fmt::format("{:.3f}x the time of {}", row["against"]["ratio"].get<double>(),
                          row["against"]["peer"].get<std::string>());
  }
  fmt::print("{:<52} {:<30} {:>10.2f} {:>10.2f} {:>9.1f} {:>9.2f} {:>7.1f}% {:>7.1f}%  {}\n",
             row["case"].get<std::string>(), row["kernel"].get<std::string>(),
             row["us"].get<double>(), row["us_clean"].get<double>(), row["gbs"].get<double>(),
             row["tflops"].get<double>(), row["percent_of_read"].get<double>(),
             row["percent_of_copy"].get<double>(), against);
  flush_stdout();
}

}  // namespace

int run_cuda_bench(const BenchOptions& options) {
  const std::vector<Case> cases = choose_cases(options);
  std::optional<PeerTimes> peers;
  if (!options.against.empty()) peers = PeerTimes::load(options.against);
  OutputFile file = options.json.empty() ? OutputFile() : OutputFile(options.json);
  const DeviceIdentity identity{.name = cuda::device_facts(0).name,
                                .driver = cuda::driver_version(),
                                .commit = options.commit.empty() ? build_commit() : options.commit};
  if (options.host) return bench_host(cases, options, identity, file);
  const cuda::Stream stream;
  const Stopwatch stopwatch(stream);
  SameCopies copies(stopwatch);
  const DeviceCeiling ceiling = stopwatch.measure_ceiling();
  fmt::print("{}, driver {}: read {:.0f} GB/s, copy {:.0f} GB/s, empty graph {:.2f} us\n",
             identity.name, identity.driver, ceiling.read_gbs, ceiling.copy_gbs, ceiling.graph_us);
  print_header();
  const ProgressBar progress(cases.size());
  std::size_t done = 0;
  for (const Case& timed : cases) {
    progress.show(done++, timed.name);
    const auto [row, refusal] = time_on_gpu(timed, options, stream, stopwatch, copies);
    progress.clear();
    if (!row.has_value()) {
      fmt::print("{:<52} skipped: {}\n", timed.name, refusal);
      continue;
    }
    const nlohmann::json object = to_json(*row, ceiling, identity, find_peer(peers, *row));
    print_row(object);
    file.write(object.dump() + "\n");
  }
  return 0;
}

}  // namespace quire::tools
