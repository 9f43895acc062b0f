// SPDX-License-Identifier: Apache-2.0
// Where Y goes: routing, pages, layers. What Y is: fused_qkv_matmul_values_test.cpp.
#include "reference/fused_qkv_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reference/ragged.h"
#include "support/cache_builder.h"
#include "support/cache_snapshot.h"
#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::CacheOptions;
using test::CacheSnapshot;
using test::HostTensor;
using test::PageOrder;
using test::TestCache;

// x(t) = [1, 1000 t], w(n) = [n, 1]: y(t, n) = n + 1000 t names its place.
double named(std::int64_t token, std::int64_t n) {
  return static_cast<double>(n + 1000 * token);
}

struct Projection {
  HostTensor x;
  HostTensor weight;
  HostTensor out;

  Projection(std::int64_t tokens, std::int64_t q_dim, std::int64_t n)
      : x(DType::f32, {tokens, 2}), weight(DType::f32, {n, 2}), out(DType::f32, {tokens, q_dim}) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      x.view().store({t, 0}, 1.0);
      x.view().store({t, 1}, static_cast<double>(1000 * t));
    }
    for (std::int64_t row = 0; row < n; ++row) {
      weight.view().store({row, 0}, static_cast<double>(row));
      weight.view().store({row, 1}, 1.0);
    }
  }

  FusedQkvArgs args(const TestCache& cache, std::int64_t layer) const {
    return {.x = x.view(),
            .row_offsets = cache.row_offsets(),
            .weight = {.data = weight.view()},
            .cache = cache.view(),
            .layer = layer,
            .out = out.view()};
  }
};

struct RoutingCase {
  std::string name;
  CacheOptions cache;
  std::int64_t q_dim = 24;
  std::int64_t layer = 0;
};

class FusedQkvRouting : public testing::TestWithParam<RoutingCase> {};

TEST_P(FusedQkvRouting, EveryColumnLandsInItsPlaceAndNowhereElse) {
  const RoutingCase& c = GetParam();
  const TestCache cache(c.cache);
  const PagedKVCache view = cache.view();
  const std::int64_t width = view.head_dim();
  const std::int64_t kv_dim = view.num_kv_heads() * width;
  const std::int64_t n = c.q_dim + (view.is_mla() ? 1 : 2) * kv_dim;
  const Projection problem(cache.num_tokens(), c.q_dim, n);
  CacheSnapshot before(cache);
  before.allow_new_tokens(c.layer, KvSide::key);
  if (!view.is_mla()) before.allow_new_tokens(c.layer, KvSide::value);

  reference::fused_qkv_matmul(problem.args(cache, c.layer));

  for (const Token& token : tokens_of(cache.row_offsets(), view)) {
    for (std::int64_t i = 0; i < c.q_dim; ++i) {
      EXPECT_EQ(problem.out.at({token.index, i}), named(token.index, i));
    }
    for (std::int64_t i = 0; i < kv_dim; ++i) {
      const auto column = static_cast<std::int32_t>(i % width);
      EXPECT_EQ(view.key(c.layer).load(token.sequence, i / width, token.position, column),
                named(token.index, c.q_dim + i));
      if (view.is_mla()) continue;
      EXPECT_EQ(view.value(c.layer).load(token.sequence, i / width, token.position, column),
                named(token.index, c.q_dim + kv_dim + i));
    }
  }
  EXPECT_EQ(before.unexpected_changes(), 0);
}

CacheOptions mla_576() {
  return {.cache_lengths = {3, 0},
          .new_tokens = {2, 5},
          .row_format = RowFormat::uniform(DType::f32, 576),
          .num_kv_heads = 1,
          .is_mla = true};
}

INSTANTIATE_TEST_SUITE_P(
    Caches, FusedQkvRouting,
    testing::Values(
        RoutingCase{"one_token", {}},
        RoutingCase{"prefill", {.cache_lengths = {0, 0}, .new_tokens = {7, 3}}},
        RoutingCase{"decode", {.cache_lengths = {5, 9, 1}, .new_tokens = {1, 1, 1}}},
        RoutingCase{"mixed", {.cache_lengths = {5, 0, 11}, .new_tokens = {1, 6, 2}}},
        RoutingCase{"last_slot_of_a_page", {.cache_lengths = {3}, .new_tokens = {1}}},
        RoutingCase{"first_slot_of_a_page", {.cache_lengths = {4}, .new_tokens = {1}}},
        RoutingCase{"across_a_page_edge", {.cache_lengths = {2}, .new_tokens = {5}}},
        RoutingCase{"empty_first", {.cache_lengths = {2, 2}, .new_tokens = {0, 3}}},
        RoutingCase{"empty_middle", {.cache_lengths = {2, 5, 2}, .new_tokens = {1, 0, 3}}},
        RoutingCase{"empty_last", {.cache_lengths = {2, 2}, .new_tokens = {3, 0}}},
        RoutingCase{"all_empty", {.cache_lengths = {2, 4}, .new_tokens = {0, 0}}},
        RoutingCase{"no_sequence", {.cache_lengths = {}, .new_tokens = {}}},
        RoutingCase{
            "last_layer", {.cache_lengths = {1}, .new_tokens = {4}, .num_layers = 5}, 24, 4},
        RoutingCase{
            "middle_layer", {.cache_lengths = {1}, .new_tokens = {4}, .num_layers = 5}, 24, 2},
        RoutingCase{"page_of_one", {.cache_lengths = {2}, .new_tokens = {3}, .page_size = 1}},
        RoutingCase{"one_kv_head", {.new_tokens = {3}, .num_kv_heads = 1}},
        RoutingCase{"eight_kv_heads", {.new_tokens = {3}, .num_kv_heads = 8}},
        RoutingCase{"heads_first_pool",
                    {.cache_lengths = {3}, .new_tokens = {3}, .heads_first = true}},
        RoutingCase{"descending_pages",
                    {.cache_lengths = {5}, .new_tokens = {9}, .page_order = PageOrder::descending}},
        RoutingCase{"ascending_pages",
                    {.cache_lengths = {5}, .new_tokens = {9}, .page_order = PageOrder::ascending}},
        RoutingCase{"narrow_q", {.new_tokens = {3}}, 1}, RoutingCase{"mla_576", mla_576(), 48, 1}),
    [](const auto& test) { return test.param.name; });

class FusedQkvSentinel : public testing::TestWithParam<std::uint32_t> {};

TEST_P(FusedQkvSentinel, StoresToUnassignedPagesAreDropped) {
  TestCache cache({.cache_lengths = {2, 0}, .new_tokens = {4, 2}});
  const auto num_pages = static_cast<std::uint32_t>(cache.view().num_pages());
  cache.unassign(0, 1, GetParam() == 0 ? num_pages : GetParam());
  const Projection problem(6, 8, 8 + 2 * 16);
  CacheSnapshot before(cache);
  before.allow_new_tokens(0, KvSide::key);
  before.allow_new_tokens(0, KvSide::value);

  reference::fused_qkv_matmul(problem.args(cache, 0));

  EXPECT_EQ(before.unexpected_changes(), 0);
  for (std::int64_t t = 0; t < 6; ++t) EXPECT_EQ(problem.out.at({t, 7}), named(t, 7));
  const KvLayerView key = cache.view().key(0);
  EXPECT_EQ(key.load(0, 1, 3, 0), named(1, 16));  // on the first page, still written
  EXPECT_EQ(key.load(0, 1, 4, 0), 0.0);           // dropped
  EXPECT_EQ(key.load(1, 1, 1, 0), named(5, 16));
}

INSTANTIATE_TEST_SUITE_P(Ids, FusedQkvSentinel, testing::Values(0u, 0xffffffffu, 0x7fffffffu),
                         [](const auto& test) {
                           return test.param == 0 ? std::string("num_pages")
                                                  : "id_" + std::to_string(test.param);
                         });

TEST(FusedQkvStrides, PaddedInputsAndOutputs) {
  const TestCache cache({.cache_lengths = {0}, .new_tokens = {3}});
  const Projection problem(3, 8, 8 + 2 * 16);
  FusedQkvArgs args = problem.args(cache, 0);
  // The same x, weight and out, as views of wider buffers.
  const HostTensor wide_x(DType::f32, {3, 5});
  const HostTensor wide_out(DType::f32, {3, 11});
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t k = 0; k < 2; ++k) wide_x.view().store({t, k}, problem.x.at({t, k}));
  }
  args.x = wide_x.view();
  args.x.shape[1] = 2;
  args.out = wide_out.view();
  args.out.shape[1] = 8;
  reference::fused_qkv_matmul(args);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t n = 0; n < 8; ++n) EXPECT_EQ(wide_out.at({t, n}), named(t, n));
    EXPECT_TRUE(std::isnan(wide_out.at({t, 8})));
  }
  EXPECT_EQ(cache.view().value(0).load(0, 1, 2, 7), named(2, 39));
}

}  // namespace
}  // namespace quire::reference
