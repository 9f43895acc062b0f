// SPDX-License-Identifier: Apache-2.0
// Random problems of the projection and of every attention op on the GPU against the oracle, by the rules of `quire
// check`: poisoned pages, a second run, a replayed graph, nothing written beside the outputs. Long runs, and runs on views
// with gaps and numbers far from 1, are those of quire_random --device cuda.
//
//   QUIRE_RANDOM_CASES   problems per op, 24 unless told
//   QUIRE_RANDOM_SEED    another one, other problems
//   QUIRE_KERNEL         candidates whose name starts so, "cuda" unless told; what they refuse is
//                        counted, not checked
//   QUIRE_RANDOM_REPEATS runs of each problem that must leave the same bytes, 1 unless told
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "cuda/common/runtime/device_facts.h"
#include "fuzz/problems/random_case.h"
#include "tools/check/check_case.h"

namespace quire::test {
namespace {

std::string variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

nlohmann::json draw_case(const std::string& op, std::uint64_t seed, std::int64_t index) {
  Draw draw = draw_of(seed, index, Extent::tiles);
  return random_case(op, draw);
}

tools::Case make_case(const std::string& op, std::uint64_t seed, std::int64_t index) {
  const nlohmann::json document = nlohmann::json::array({draw_case(op, seed, index)});
  return tools::parse_cases(document, "random").front();
}

struct Tally {
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> checked{0};
  std::mutex mutex;
  std::vector<std::string> faults;
};

// Threads share the problems: the oracle takes longer than the GPU.
void check_cases(const std::string& op, std::int64_t count, const tools::CheckMode& mode,
                 Tally& tally) {
  const std::uint64_t seed = std::stoull(variable("QUIRE_RANDOM_SEED", "1"));
  for (std::int64_t index = tally.next++; index < count; index = tally.next++) {
    const tools::Verdict verdict = tools::check_case(make_case(op, seed, index), mode);
    if (verdict.outcome != tools::Outcome::skipped) ++tally.checked;
    if (verdict.outcome != tools::Outcome::failed) continue;
    const std::lock_guard lock(tally.mutex);
    tally.faults.push_back(draw_case(op, seed, index).dump() + "\n    " + verdict.kernel + ": " +
                           verdict.faults.front());
  }
}

class RandomCase : public testing::TestWithParam<const char*> {};

TEST_P(RandomCase, AgreesWithTheOracleOnTheGpu) {
  const std::string reason = cuda::refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  const std::int64_t count = std::stoll(variable("QUIRE_RANDOM_CASES", "24"));
  tools::CheckMode mode{.device = "cuda",
                        .repeats = std::stoi(variable("QUIRE_RANDOM_REPEATS", "1"))};
  mode.context.kernel = variable("QUIRE_KERNEL", "cuda");
  Tally tally;
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::clamp(std::thread::hardware_concurrency(), 1u, 16u); ++i) {
    threads.emplace_back([&] { check_cases(GetParam(), count, mode, tally); });
  }
  threads.clear();
  for (const std::string& fault : tally.faults) ADD_FAILURE() << fault;
  EXPECT_GT(tally.checked, 0) << "no kernel of '" << mode.context.kernel << "' took a problem";
  RecordProperty("checked", static_cast<int>(tally.checked));
  std::printf("%s: %lld of %lld problems checked\n", GetParam(),
              static_cast<long long>(tally.checked), static_cast<long long>(count));
}

INSTANTIATE_TEST_SUITE_P(All, RandomCase,
                         testing::Values("fused_qkv_matmul", "flash_attention", "mla_decode",
                                         "mla_prefill", "mla_prefill_plan", "mla_indexer",
                                         "sparse_mla"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quire::test
