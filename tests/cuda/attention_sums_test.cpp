// SPDX-License-Identifier: Apache-2.0
// How far the general kernels' sums in fp32 are from the oracle's, over many numbers of the same problems. Their
// tolerance is twice the error of a sum term by term: a kernel that sums so too is only mostly within it.
#include <gtest/gtest.h>

#include "cuda/common/runtime/device_facts.h"
#include "tools/check/compare.h"
#include "tools/device/cuda.h"

namespace quire::test {
namespace {

using nlohmann::json;

// Keys of some tiles, heads and columns of some steps; no LSE, so that `out` is the first and only output.
json flash_attention_problem() {
  return {{"op", "flash_attention"},
          {"lengths", {{"new", {5}}, {"cached", {195}}}},
          {"cache", {{"head_dim", 128}, {"kv_heads", 2}, {"dtype", "f32"}, {"page_size", 16}}},
          {"heads", 4},
          {"q_dtype", "f32"},
          {"lse", false}};
}

json latent_problem(const std::string& op) {
  return {{"op", op},
          {"lengths", {{"new", {5}}, {"cached", {195}}}},
          {"cache", {{"latent", 64}, {"rope", 32}, {"dtype", "f32"}, {"page_size", 16}}},
          {"heads", 3},
          {"nope", 128},
          {"value", 128},
          {"q_dtype", "f32"},
          {"weight_dtype", "f32"},
          {"rows", "finished"},
          {"lse", false}};
}

json problem_of(const std::string& op) {
  json object = op == "flash_attention" ? flash_attention_problem() : latent_problem(op);
  object["name"] = op + "/sums";
  object["tags"] = json::array({"tiny"});
  return object;
}

class AttentionSums : public testing::TestWithParam<const char*> {};

TEST_P(AttentionSums, AreCloserThanSumsTermByTerm) {
  const std::string reason = cuda::refuse_unless_sm80({.kind = DeviceKind::cuda, .index = 0});
  if (!reason.empty()) GTEST_SKIP() << reason;
  const tools::Case problem =
      tools::parse_cases(json::array({problem_of(GetParam())}), "sums").front();
  const Context context{.kernel = "cuda/any"};
  double own_errors = 0.0;
  double naive_errors = 0.0;
  for (std::uint64_t draw = 0; draw < 12; ++draw) {
    tools::Built subject = problem.build(tools::Layout::contiguous, draw);
    const tools::Built naive = problem.build(tools::Layout::contiguous, draw);
    const tools::Built exact = problem.build(tools::Layout::contiguous, draw);
    naive.reference(reference::Arithmetic::naive);
    exact.reference(reference::Arithmetic::exact);
    std::vector<std::string> faults;
    tools::make_cuda_runner(subject)->run(context, faults);
    EXPECT_TRUE(faults.empty()) << faults.front();
    const auto error_of = [&](const tools::Built& built) {
      return tools::max_error(built.outputs[0].view, exact.outputs[0].view);
    };
    own_errors += error_of(subject);
    naive_errors += error_of(naive);
  }
  std::printf("%s: %.2f of the error of sums term by term\n", GetParam(),
              own_errors / naive_errors);
  EXPECT_LT(own_errors, 0.75 * naive_errors);
}

INSTANTIATE_TEST_SUITE_P(Ops, AttentionSums,
                         testing::Values("flash_attention", "mla_decode", "mla_prefill"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quire::test
