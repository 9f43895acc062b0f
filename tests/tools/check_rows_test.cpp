// SPDX-License-Identifier: Apache-2.0
// Stored rows that the naive evaluation says nothing about.
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include "quire/element.h"
#include "tools/case_text.h"
#include "tools/check/check_case.h"

namespace quire::tools {
namespace {

// Keys and values of f32 beside an out of f16, which the naive evaluation rounds them to: it overflows and says nothing.
Built build_overflowing_rows(Layout layout) {
  const Case subject = parse_one(nlohmann::json::parse(R"({
    "name": "overflowing_rows", "op": "fused_qkv_matmul", "tags": ["tiny"], "hidden": 64, "q_dim": 8,
    "lengths": {"new": [3], "cached": [5]}, "x_dtype": "f32", "out_dtype": "f16",
    "weight": {"format": "dense", "dtype": "f32"},
    "cache": {"kv_heads": 2, "head_dim": 8, "page_size": 4, "dtype": "f32"}
  })"));
  Built built = subject.build(layout);
  for (Buffer& buffer : built.memory.buffers()) {
    if (buffer.name != "x") continue;
    std::byte* x = buffer.storage.data() + buffer.data_offset;
    for (std::int64_t i = 0; i < buffer.data_bytes / 4; ++i) {
      store_element(x, DType::f32, i, load_element(x, DType::f32, i) * 0x1p24);
    }
  }
  return built;
}

TEST(CheckRows, RandomRoundingIsNoLicenceForStoredRows) {
  struct Fault {
    double factor;
    Outcome outcome;
  };
  for (const Fault& fault : {Fault{1.0, Outcome::passed}, Fault{1.0 + 0x1p-17, Outcome::failed}}) {
    CheckProblem problem{
        .subject = build_overflowing_rows(Layout::requested),
        .exact = build_overflowing_rows(Layout::contiguous),
        .naive = build_overflowing_rows(Layout::contiguous),
        .build_twin = [](std::uint64_t) { return build_overflowing_rows(Layout::contiguous); }};
    problem.subject.supports = [](const Context&) {
      Plan plan;
      plan.kernel = "cpu/test";
      return plan;
    };
    problem.subject.run = [&](const Context&) {
      problem.subject.reference(
          reference::Arithmetic::random(201));  // in fp32, of a seed that is not tried
      const KvLayerView key = problem.subject.rows[0].cache.key(problem.subject.rows[0].layer);
      for (std::int32_t column = 0; column < 8; ++column) {
        key.store(0, 0, 5, column, fault.factor * key.load_quantized(0, 0, 5, column));
      }
    };
    Context context;
    context.kernel = "reference";
    const Verdict verdict = check_problem(problem, context);
    EXPECT_EQ(verdict.outcome, fault.outcome)
        << fault.factor << ": " << fmt::format("{}", fmt::join(verdict.faults, "\n"));
  }
}

}  // namespace
}  // namespace quire::tools
