// SPDX-License-Identifier: Apache-2.0
// The attention ops, recorded: replayed with other lengths they do what a fresh call would do, bit
// for bit, and a hundred runs leave the same bits. QUIRE_KERNEL names the candidates, "cuda"
// unless told. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "cuda/common/runtime/device_facts.h"
#include "device_state.h"
#include "device_twin.h"
#include "support/attention_inputs.h"
#include "support/indexer_inputs.h"
#include "tools/case/relocation.h"
#include "tools/device/cuda/stream.h"

namespace quire::test {
namespace {

struct Lengths {
  std::vector<std::uint32_t> row_offsets;
  std::vector<std::uint32_t> cache_lengths;
};

// Three sequences that share 8 rows; the pages hold 46, 30 and 52 keys.
const std::vector<std::uint32_t> kCached{40, 30, 50};
const std::vector<std::uint32_t> kAdded{6, 0, 2};
const std::vector<Lengths> kOthers{{{0, 6, 6, 8}, {40, 30, 50}},
                                   {{0, 1, 5, 8}, {44, 20, 45}},
                                   {{0, 0, 3, 8}, {0, 25, 47}},
                                   {{0, 2, 3, 4}, {7, 1, 30}}};  // the last four rows are nobody's
constexpr MlaShape kShape{.heads = 16, .nope = 128, .rope = 64, .latent = 512, .value = 128};

CacheOptions options() {
  return {.cache_lengths = kCached, .new_tokens = kAdded, .page_size = 16};
}

CacheOptions flash_options() {
  CacheOptions flash = options();
  flash.row_format = RowFormat::uniform(DType::bf16, 128);
  return flash;
}

CacheOptions indexer_options() {
  CacheOptions indexer = index_options(kCached, kAdded, 128);
  indexer.page_size = 16;
  return indexer;
}

// An op on the GPU, ready to run.
struct Recorded {
  Plan plan;
  std::function<void(const Context&)> run;
  std::vector<TensorView> written;
  TensorView row_offsets;
  TensorView cache_lengths;
};

Context asked_for() {
  const char* kernel = std::getenv("QUIRE_KERNEL");
  Context context;
  context.kernel = kernel == nullptr ? "cuda" : kernel;
  return context;
}

class Problem {
 public:
  Problem()
      : flash_(flash_options(), 8, DType::bf16),
        latent_(options(), kShape, DType::bf16, DType::bf16),
        indexer_(indexer_options(), 8, 16),
        absorbed_q_(HostTensor::random(DType::bf16, {8, 16, 576}, 41)),
        absorbed_out_(DType::bf16, {8, 16, 512}),
        indices_(DType::i32, {8, 24}) {
    indexer_.cache.fill_cached(kTestLayer, 42);
    indexer_.cache.fill_new(kTestLayer, 43);
    latent_.cache.fill_new(kTestLayer, 44);
    for (std::int64_t slot = 0; slot < 8 * 24; ++slot) {
      indices_.view().store({slot / 24, slot % 24}, static_cast<double>(slot * 7 % 55 - 1));
    }
  }

  Recorded flash() {
    return record(
        flash_.args(),
        [](const auto& a) {
          return std::vector{a.out, *a.lse};
        },
        [](const auto& a, const Context& c) { flash_attention(a, c); });
  }
  Recorded decode() {
    return record(
        latent_.decode_args(),
        [](const auto& a) {
          return std::vector{a.out, *a.lse, a.cache.blocks};
        },
        [](const auto& a, const Context& c) { mla_decode(a, c); });
  }
  Recorded prefill() {
    return record(
        latent_.prefill_args(64),
        [](const auto& a) {
          return std::vector{a.out, *a.lse, a.q, a.cache.blocks};
        },
        [](const MlaPrefillArgs& a, const Context& c) {
          Context planning;
          planning.stream = c.stream;
          mla_prefill_plan({.row_offsets = a.row_offsets,
                            .cache = a.cache,
                            .layer = a.layer,
                            .chunks = a.chunks},
                           planning);
          mla_prefill(a, c);
        });
  }
  Recorded indexer() {
    return record(
        indexer_.args(), [](const auto& a) { return std::vector{a.out}; },
        [](const auto& a, const Context& c) { mla_indexer(a, c); });
  }
  Recorded sparse() {
    return record(
        latent_.sparse_args(absorbed_q_, indices_, absorbed_out_),
        [](const auto& a) {
          return std::vector{a.out, *a.lse};
        },
        [](const auto& a, const Context& c) { sparse_mla(a, c); });
  }

 private:
  template <typename Args, typename Written, typename Run>
  Recorded record(const Args& here, const Written& written, const Run& run) {
    const Args args =
        tools::relocate(here, [this](const TensorView& view) { return twin_.move(view); });
    return {.plan = supports(args, asked_for()),
            .run = [args, run](const Context& context) { run(args, context); },
            .written = written(args),
            .row_offsets = args.row_offsets,
            .cache_lengths = args.cache.cache_lengths};
  }

  FlashInputs flash_;
  MlaInputs latent_;
  IndexerInputs indexer_;
  HostTensor absorbed_q_, absorbed_out_, indices_;
  DeviceTwin twin_;
};

class RecordedAttention
    : public testing::TestWithParam<std::pair<const char*, Recorded (Problem::*)()>> {
 protected:
  void SetUp() override {
    const std::string reason = cuda::refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(RecordedAttention, ReplayedWithOtherLengthsItDoesWhatAFreshCallDoes) {
  Problem problem;
  const Recorded op = (problem.*GetParam().second)();
  if (!op.plan.supported()) GTEST_SKIP() << op.plan.describe();
  const DeviceState state(op.written);
  const cuda::Stream stream;
  const cuda::DeviceBuffer workspace(op.plan.workspace_bytes);
  Context context = asked_for();
  context.stream = stream.get();
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.bytes();
  const cuda::Graph graph(stream, [&] { op.run(context); });
  expect_replays_are_fresh_calls(
      state, kOthers,
      [&](const Lengths& lengths) {
        upload(op.row_offsets, lengths.row_offsets);
        upload(op.cache_lengths, lengths.cache_lengths);
      },
      [&] { op.run(context); }, [&] { graph.replay(stream); });
}

TEST_P(RecordedAttention, LeavesTheSameBitsAHundredTimes) {
  Problem problem;
  const Recorded op = (problem.*GetParam().second)();
  if (!op.plan.supported()) GTEST_SKIP() << op.plan.describe();
  const DeviceState state(op.written);
  const cuda::DeviceBuffer workspace(op.plan.workspace_bytes);
  Context context = asked_for();
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.bytes();
  op.run(context);
  const DeviceState::Bytes first = state.read();
  EXPECT_FALSE(first == state.start());
  for (int run = 0; run < 100; ++run) {
    state.restore();
    op.run(context);
    ASSERT_TRUE(state.read() == first) << "run " << run + 2;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, RecordedAttention,
                         testing::Values(std::pair{"flash_attention", &Problem::flash},
                                         std::pair{"mla_decode", &Problem::decode},
                                         std::pair{"mla_prefill", &Problem::prefill},
                                         std::pair{"mla_indexer", &Problem::indexer},
                                         std::pair{"sparse_mla", &Problem::sparse}),
                         [](const auto& test) { return std::string(test.param.first); });

}  // namespace
}  // namespace quire::test
