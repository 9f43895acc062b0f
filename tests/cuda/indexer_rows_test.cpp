// SPDX-License-Identifier: Apache-2.0
// Rows of scores that are hard to select from, on the GPU: what it chooses is what the oracle
// chooses, element for element. The scores are exact in fp32, so that nothing but the selection
// decides. QUIRE_KERNEL names the candidates, "cuda" unless told. Skipped where there is no GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "cuda/common/runtime/device_facts.h"
#include "device_twin.h"
#include "reference/mla_indexer.h"
#include "support/attention_inputs.h"
#include "support/indexer_inputs.h"

namespace quire::test {
namespace {

struct Pattern {
  const char* name;
  double (*score)(std::int64_t key, std::mt19937& random);
};

constexpr Pattern kPatterns[] = {
    {"all_equal", [](std::int64_t, std::mt19937&) { return 1.0; }},
    {"all_negative", [](std::int64_t, std::mt19937&) { return -3.0; }},
    {"two_valued",
     [](std::int64_t, std::mt19937& random) { return random() % 2 == 0 ? 1.0 : 2.0; }},
    {"neighbours",
     [](std::int64_t, std::mt19937& random) { return 1.0 + 0x1p-23 * (random() % 3); }},
    {"ascending", [](std::int64_t key, std::mt19937&) { return static_cast<double>(key); }},
    {"descending", [](std::int64_t key, std::mt19937&) { return -static_cast<double>(key); }},
    {"signed_zeros",
     [](std::int64_t, std::mt19937& random) { return random() % 2 == 0 ? 0.0 : -0.0; }},
    {"steps_of_a_tile",
     [](std::int64_t key, std::mt19937&) { return -static_cast<double>(key / 64); }},
    {"rare_best",
     [](std::int64_t, std::mt19937& random) { return random() % 100 == 0 ? 5.0 : -1.0; }},
    {"with_nan_and_infinities",
     [](std::int64_t, std::mt19937& random) {
       constexpr double kInfinity = std::numeric_limits<double>::infinity();
       const double odd[] = {std::nan(""), -kInfinity, kInfinity, 0.0, 1.0};
       return odd[random() % 5];
     }},
    {"random",
     [](std::int64_t, std::mt19937& random) {
       return static_cast<double>(static_cast<float>(random() * 0x1p-30 - 2.0));
     }},
};

struct Shape {
  std::uint32_t cached;
  std::uint32_t added;
  std::int64_t top_k;
};

// Bounds from below top_k to above it, at the borders of tiles and of passes over 256 keys, of one new
// token and of several, of more keys than a pool holds, and of more than a merge holds.
constexpr Shape kShapes[] = {{0, 12, 8},       {0, 3, 1},       {60, 8, 64},     {120, 12, 64},
                             {250, 12, 128},   {600, 8, 255},   {0, 6, 2048},    {2040, 12, 2048},
                             {5000, 2, 2048},  {63, 1, 64},     {64, 1, 64},     {127, 1, 64},
                             {2047, 1, 2048},  {2048, 1, 2048}, {9000, 1, 2048}, {3100, 1, 1000},
                             {33000, 1, 2048}, {21000, 3, 300}};

// What kernels are compiled for, and what only the general one takes.
struct Heads {
  std::int64_t count;
  std::int32_t dims;
};
constexpr Heads kHeads[] = {{1, 4},  {4, 128}, {8, 128}, {16, 128}, {32, 128}, {64, 128},
                            {4, 64}, {8, 64},  {16, 64}, {32, 64},  {64, 64}};

// Columns of the page table that no key needs. With many of them, nothing says that rows are short enough
// for a cluster; with most, for the thread blocks of a group.
constexpr std::int64_t kFewColumns = 1;
constexpr std::int64_t kManyColumns = 40000;
constexpr std::int64_t kMostColumns = 160000;

PickInputs make_inputs(const Pattern& pattern, const Shape& shape, const Heads& heads,
                       std::int64_t spare_columns = kFewColumns) {
  CacheOptions options = index_options({shape.cached}, {shape.added}, heads.dims);
  options.page_size = 16;
  options.spare_columns = spare_columns;
  PickInputs inputs(options, shape.top_k, heads.count);
  std::mt19937 random(7);
  for (std::int64_t key = 0; key < shape.cached + shape.added; ++key) {
    inputs.set_score(0, key, 1.0, pattern.score(key, random));
  }
  return inputs;
}

// False where the kernel that was asked for does not take the problem.
bool run_on_gpu(const MlaIndexerArgs& args) {
  DeviceTwin twin;
  const MlaIndexerArgs there = twin.move(args);
  Context context;
  const char* kernel = std::getenv("QUIRE_KERNEL");
  context.kernel = kernel == nullptr ? "cuda" : kernel;
  const Plan plan = supports(there, context);
  if (!plan.supported()) return false;
  const cuda::DeviceBuffer workspace(plan.workspace_bytes);
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.bytes();
  mla_indexer(there, context);
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  twin.bring_back();
  return true;
}

class IndexerRows : public testing::TestWithParam<Pattern> {};

TEST_P(IndexerRows, AreSelectedAsTheOracleDoes) {
  const std::string reason = cuda::refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  int problems = 0;
  for (const Shape& shape : kShapes) {
    // The scores do not depend on heads that are zero.
    const PickInputs oracle = make_inputs(GetParam(), shape, kHeads[0]);
    reference::mla_indexer(oracle.args());
    for (const Heads& heads : kHeads) {
      for (const std::int64_t spare_columns : {kFewColumns, kManyColumns, kMostColumns}) {
        const PickInputs subject = make_inputs(GetParam(), shape, heads, spare_columns);
        if (!run_on_gpu(subject.args())) continue;
        ++problems;
        for (std::int64_t token = 0; token < shape.added; ++token) {
          ASSERT_EQ(subject.row(token), oracle.row(token))
              << heads.count << " heads of " << heads.dims << ", token " << token << " of "
              << shape.added << " after " << shape.cached << " keys, top_k " << shape.top_k << ", "
              << spare_columns << " columns too many";
        }
      }
    }
  }
  EXPECT_GT(problems, 0) << "no problem is one that the kernel takes";
}

// A batch whose rows are taken by groups of thread blocks: long ones, one that is not scored, a sequence
// without a new token.
TEST_P(IndexerRows, OfUnequalSequencesAreSelectedAsTheOracleDoes) {
  const std::string reason = cuda::refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kSomeColumns = 4000;
  const std::vector<std::uint32_t> cached{33000, 100, 9000, 70, 2047, 20000};
  const std::vector<std::uint32_t> added{1, 1, 1, 0, 1, 1};
  const auto make = [&](const Heads& heads) {
    CacheOptions options = index_options(cached, added, heads.dims);
    options.page_size = 16;
    options.spare_columns = kSomeColumns;
    PickInputs inputs(options, 300, heads.count);
    std::mt19937 random(7);
    for (std::size_t sequence = 0; sequence < cached.size(); ++sequence) {
      for (std::int64_t key = 0; key < cached[sequence] + added[sequence]; ++key) {
        inputs.set_score(static_cast<std::int64_t>(sequence), key, 1.0,
                         GetParam().score(key, random));
      }
    }
    return inputs;
  };
  const PickInputs oracle = make(kHeads[0]);
  reference::mla_indexer(oracle.args());
  for (const Heads& heads : {Heads{64, 128}, Heads{8, 64}}) {
    const PickInputs subject = make(heads);
    if (!run_on_gpu(subject.args())) continue;
    for (std::int64_t token = 0; token < 5; ++token) {
      ASSERT_EQ(subject.row(token), oracle.row(token)) << heads.count << " heads, token " << token;
    }
  }
}

// The first top_k of a stable sort, in order of position.
std::vector<std::int32_t> best_of(std::vector<double> scores, std::int64_t top_k) {
  std::vector<std::int32_t> keys(scores.size());
  std::iota(keys.begin(), keys.end(), 0);
  const auto rank = [&](std::int32_t key) {
    const double score = scores[static_cast<std::size_t>(key)];
    return std::isnan(score) ? std::pair(0, 0.0) : std::pair(1, score);
  };
  std::stable_sort(keys.begin(), keys.end(),
                   [&](std::int32_t a, std::int32_t b) { return rank(a) > rank(b); });
  keys.resize(static_cast<std::size_t>(top_k));
  std::sort(keys.begin(), keys.end());
  return keys;
}

// So many rows that a thread block has more keys of one than its list holds.
TEST_P(IndexerRows, LongOnesAreTheBestOfAStableSort) {
  const std::string reason = cuda::refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  constexpr Shape kLong{.cached = 13800, .added = 300, .top_k = 2048};
  for (const Heads& heads : {Heads{64, 128}, Heads{8, 64}}) {
    const PickInputs subject = make_inputs(GetParam(), kLong, heads);
    if (!run_on_gpu(subject.args())) continue;
    std::mt19937 random(7);
    std::vector<double> scores;
    for (std::int64_t key = 0; key < kLong.cached + kLong.added; ++key) {
      scores.push_back(GetParam().score(key, random));
    }
    for (const std::int64_t token : {0, 1, 2, 131, 132, 298, 299}) {
      std::vector<double> seen(scores.begin(), scores.begin() + kLong.cached + token + 1);
      ASSERT_EQ(subject.row(token), best_of(std::move(seen), kLong.top_k))
          << heads.count << " heads of " << heads.dims << ", token " << token;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, IndexerRows, testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace quire::test
