// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <thread>

#include "cuda/runtime/device_facts.h"
#include "tools/device/cuda.h"
#include "tools/device/cuda/device_memory.h"
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

Timed time_on_gpu(const Case& timed, const BenchOptions& options, const cuda::Stream& stream,
                  const Stopwatch& stopwatch, SameCopies& copies) {
  Built built = timed.build(Layout::deferred);
  DeviceMemory memory(built.memory, stream);
  memory.upload();
  const Calls calls = built.relocated(memory.relocation());
  Context context;
  context.stream = stream.get();
  const cuda::DeviceBuffer packed(calls.packed_bytes);
  if (calls.pack) calls.pack(packed.data(), context);
  context.kernel = options.target;
  const Plan plan = calls.supports(context);
  if (!plan.supported()) return {.refusal = plan.describe()};
  const Workspace workspace(plan.workspace_bytes, stream);
  const auto work = [&] { calls.run(workspace.in(context)); };
  stream.wait();
  std::this_thread::sleep_for(kRest);
  return {.row = DeviceRow{.label = timed.label(),
                           .parts = timed.peer_parts,
                           .case_name = timed.name,
                           .kernel = plan.kernel,
                           .flops = timed.problem->flops(),
                           .bytes = timed.problem->bytes(),
                           .own = stopwatch.time(work),
                           .same_copy = copies.of(*timed.problem)}};
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
