// SPDX-License-Identifier: Apache-2.0
// Rows in bf16 pages of their own, on the GPU, against the rows of the cache. Skipped where there is no GPU.
#include "cuda/common/paging/decoded_pages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/status.h"
#include "device_twin.h"
#include "quire/element.h"
#include "quire/ops/sparse_mla.h"
#include "support/cache_builder.h"
#include "support/expect_near.h"
#include "support/host_tensor.h"

namespace quire::cuda {
namespace {

using test::CacheOptions;
using test::HostTensor;
using test::TestCache;

constexpr std::int64_t kLayer = 1;

struct Subject {
  std::string name;
  RowFormat format;
  std::int32_t page_size = 16;
  std::int64_t tokens_per_row = 1;
};

class DecodedPagesTest : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const std::string reason = refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(DecodedPagesTest, HoldTheRowsOfAllKeys) {
  CacheOptions options;
  options.cache_lengths = {5, 0, 90, 0, 33};
  options.new_tokens = {6, 0, 40, 1, 0};
  options.row_format = GetParam().format;
  options.page_size = GetParam().page_size;
  options.is_mla = true;
  options.num_kv_heads = 1;
  TestCache cache(options);
  cache.fill_cached(kLayer, 1, 3.0);
  cache.fill_new(kLayer, 2, 3.0);
  cache.unassign(2, 1);
  const PagedKVCache host = cache.view();
  test::DeviceTwin twin;
  PagedKVCache moved = host;
  moved.blocks = twin.move(host.blocks);
  if (host.scales) moved.scales = twin.move(*host.scales);
  moved.cache_lengths = twin.move(host.cache_lengths);
  moved.page_table = twin.move(host.page_table);
  const TensorView offsets = twin.move(cache.row_offsets());

  const DecodedShape shape{.batch = host.batch(),
                           .columns = ceil_div(130, options.page_size),
                           .page_size = GetParam().page_size,
                           .width = options.row_format.width(),
                           .tokens_per_row = GetParam().tokens_per_row};
  Carver counter;
  DecodedPages::carve(counter, shape);
  DeviceBuffer memory(counter.bytes());
  check(cudaMemset(memory.data(), 0x7f, static_cast<std::size_t>(counter.bytes())), "cudaMemset");
  Carver carver(memory.data());
  const DecodedPages decoded = DecodedPages::carve(carver, shape);
  launch_decode_pages(moved.key(kLayer), offsets.as<const std::uint32_t>(), decoded, nullptr);
  std::vector<std::byte> rows(static_cast<std::size_t>(shape.bytes()));
  std::vector<std::uint32_t> ids(static_cast<std::size_t>(shape.pages()));
  check(cudaMemcpy(rows.data(), decoded.rows, rows.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaMemcpy(ids.data(), decoded.ids, ids.size() * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");

  const KvLayerView on_host = host.key(kLayer);
  const KvLayerView found = DecodedPages{shape, rows.data(), ids.data()}.view_of(on_host);
  for (std::int64_t b = 0; b < host.batch(); ++b) {
    const std::int64_t keys =
        (options.cache_lengths[b] + options.new_tokens[b]) / shape.tokens_per_row;
    for (std::int64_t key = 0; key < keys; ++key) {
      if (b == 2 && key / shape.page_size == 1) continue;  // the page that nobody has
      for (std::int32_t column = 0; column < shape.width; ++column) {
        const double wanted =
            round_to(DType::bf16, static_cast<float>(on_host.load(b, 0, key, column)));
        ASSERT_EQ(found.load(b, 0, key, column), wanted) << b << " " << key << " " << column;
      }
    }
    EXPECT_EQ(ids[static_cast<std::size_t>(2 * shape.columns + 1)], kUnassignedPage);
    for (std::int64_t page = ceil_div(keys, shape.page_size); page < shape.columns; ++page) {
      EXPECT_EQ(ids[static_cast<std::size_t>(b * shape.columns + page)], kUnassignedPage);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, DecodedPagesTest,
    testing::Values(Subject{"rows_of_656", RowFormat::mla_fp8_block()},
                    Subject{"pages_of_5", RowFormat::mla_fp8_block(), 5},
                    Subject{"scaled", RowFormat::scaled(DType::fp8_e4m3, 576, 576)},
                    Subject{"plain", RowFormat::uniform(DType::fp8_e4m3, 576)},
                    Subject{"powers_of_two", RowFormat::mla_fp8_e8m0()},
                    Subject{"rows_of_4_tokens", RowFormat::mla_fp8_e8m0(), 16, 4}),
    [](const auto& test) { return test.param.name; });

// The same call with rows that the kernel decodes, as it does where batches are invariant, and with rows in pages of
// their own: other orders of the same sums.
TEST(DecodedPagesSparse, GiveWhatDecodingInTheKernelGives) {
  const std::string reason = refuse_unless_sm90({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  constexpr std::int64_t kTokens = 256;
  constexpr std::int64_t kHeads = 128;
  constexpr std::int64_t kTopK = 512;
  CacheOptions options;
  options.cache_lengths = {300, 17};
  options.new_tokens = {200, 56};
  options.row_format = RowFormat::mla_fp8_block();
  options.page_size = 64;
  options.is_mla = true;
  options.num_kv_heads = 1;
  TestCache cache(options);
  cache.fill_cached(kLayer, 1);
  cache.fill_new(kLayer, 2);
  cache.unassign(0, 2);
  const HostTensor q = HostTensor::random(DType::bf16, {kTokens, kHeads, 576}, 3);
  const HostTensor indices(DType::i32, {kTokens, kTopK});
  for (std::int64_t i = 0; i < kTokens * kTopK; ++i) {
    indices.view().as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % 550) - 9;
  }
  const auto run = [&](bool batch_invariant) {
    const HostTensor out(DType::bf16, {kTokens, kHeads, 512});
    test::DeviceTwin twin;
    SparseMlaArgs args{.q = twin.move(q.view()),
                       .row_offsets = twin.move(cache.row_offsets()),
                       .cache = cache.view(),
                       .layer = kLayer,
                       .indices = twin.move(indices.view()),
                       .scale = 0.06,
                       .out = twin.move(out.view()),
                       .batch_invariant = batch_invariant};
    args.cache.blocks = twin.move(args.cache.blocks);
    args.cache.cache_lengths = twin.move(args.cache.cache_lengths);
    args.cache.page_table = twin.move(args.cache.page_table);
    args.cache.max_seq_length = 200;
    args.cache.max_cache_length = 500;
    const Plan plan = supports(args);
    EXPECT_EQ(plan.workspace_bytes > 0, !batch_invariant);
    DeviceBuffer workspace(plan.workspace_bytes);
    Context context;
    context.workspace = workspace.data();
    context.workspace_bytes = plan.workspace_bytes;
    sparse_mla(args, context);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    twin.bring_back();
    return out.values();
  };
  test::expect_near(run(false), run(true), 0x1p-7);
}

}  // namespace
}  // namespace quire::cuda
