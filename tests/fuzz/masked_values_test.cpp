// SPDX-License-Identifier: Apache-2.0
// What of a difference from the oracle is excused by values that are NaN, and what is not.
#include "fuzz/problems/masked_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quire/element.h"
#include "tools/case/case.h"

namespace quire::test {
namespace {

using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Row edits of a case of two sequences with three keys each, two of them new.
std::vector<bool> open_after(const json& more, const Edits& edits) {
  json object{{"op", "flash_attention"},
              {"lengths", {{"new", {2, 2}}, {"cached", {1, 1}}}},
              {"cache", {{"kv_heads", 1}, {"head_dim", 8}, {"page_size", 2}}}};
  object.update(more);
  return sequences_with_open_values(object, edits);
}

Edits one_row(tools::Side side, std::int32_t column, double value) {
  RowEdit edit{.cache = "cache", .column = column, .value = value};
  edit.place.side = side;
  edit.place.sequence = 1;
  edit.place.token = 2;
  return {.rows = {edit}};
}

TEST(MaskedValues, AreOpenOnlyWhereTheyAreNotFinite) {
  const std::vector<bool> none{false, false};
  const std::vector<bool> second{false, true};
  EXPECT_EQ(open_after(json::object(), one_row(tools::Side::value, 3, kNan)), second);
  EXPECT_EQ(open_after(json::object(), one_row(tools::Side::value, 3, 1e12)), none);
  EXPECT_EQ(open_after(json::object(), one_row(tools::Side::key, 3, kNan)), none);
  const json shared{{"shared_prefix_pages", 1}};
  EXPECT_EQ(open_after(shared, one_row(tools::Side::value, 3, kNan)),
            (std::vector<bool>{true, true}));
  const json latent{{"op", "mla_decode"},
                    {"cache", {{"latent", 8}, {"rope", 2}, {"page_size", 2}}}};
  EXPECT_EQ(open_after(latent, one_row(tools::Side::key, 7, kNan)), second);
  EXPECT_EQ(open_after(latent, one_row(tools::Side::key, 8, kNan)), none);  // a rope column
  json hole = latent;
  hole["cache"]["unassigned"] = {{1, 1}};
  EXPECT_EQ(open_after(hole, one_row(tools::Side::key, 7, kNan)), none);
  const Edits kv{.tensors = {{.tensor = "kv", .element = 2 * 10, .value = kNan}}};
  EXPECT_EQ(open_after(latent, kv), second);
  const Edits q{.tensors = {{.tensor = "q", .element = 0, .value = kNan}}};
  EXPECT_EQ(open_after(latent, q), none);
  // mla_prefill rounds latents to q's dtype.
  json prefill = latent;
  prefill["op"] = "mla_prefill";
  prefill["q_dtype"] = "bf16";
  EXPECT_EQ(open_after(prefill, one_row(tools::Side::key, -1, 0x1p32)), none);
  prefill["q_dtype"] = "f16";
  EXPECT_EQ(open_after(prefill, one_row(tools::Side::key, -1, 0x1p32)),
            (std::vector<bool>{true, true}));
  // New rows are rounded to gamma's dtype.
  const Edits gamma{.tensors = {{.tensor = "kv_norm_gamma", .element = 0, .value = 57344.0}}};
  EXPECT_EQ(open_after(latent, gamma), none);
  json narrow = latent;
  narrow["gamma_dtype"] = "f16";
  EXPECT_EQ(open_after(narrow, gamma), (std::vector<bool>{true, true}));
  const json sparse{{"op", "sparse_mla"}, {"cache", latent["cache"]}};
  EXPECT_TRUE(open_after(sparse, one_row(tools::Side::key, 7, kNan)).empty());
}

// A kernel that leaves NaN everywhere is excused in out of the open sequence, and nowhere else.
class NanRunner final : public tools::Runner {
 public:
  explicit NanRunner(const tools::Built& subject) : subject_(subject) {}
  Plan supports(const Context& context) override { return subject_.supports(context); }
  void run(const Context&, std::vector<std::string>&) override {
    for (const tools::Output& output : subject_.outputs) {
      for (std::int64_t i = 0; i < output.view.numel(); ++i) {
        store_element(output.view.data, output.view.dtype, i, kNan);
      }
    }
  }
  bool replay(const Context&, std::vector<std::string>&) override { return false; }

 private:
  const tools::Built& subject_;
};

TEST(MaskedValues, AreAcceptedInOutOfTheOpenSequenceAlone) {
  const json object{{"op", "flash_attention"},
                    {"name", "flash_attention/masked_values"},
                    {"tags", {"edge"}},
                    {"heads", 1},
                    {"lengths", {{"new", {1, 1}}, {"cached", {1, 1}}}},
                    {"cache", {{"kv_heads", 1}, {"head_dim", 8}, {"page_size", 2}}}};
  const tools::Case parsed = tools::parse_cases(nlohmann::json::array({object}), "random").front();
  const tools::Built subject = parsed.build(tools::Layout::requested);
  const tools::Built exact = parsed.build(tools::Layout::contiguous);
  exact.reference(reference::Arithmetic::exact);
  std::vector<std::string> faults;
  accept_masked_values(std::make_unique<NanRunner>(subject), object, {false, true}, subject, exact)
      ->run({}, faults);
  ASSERT_EQ(subject.outputs.size(), 2u);
  const TensorView out = subject.outputs[0].view;
  const TensorView lse = subject.outputs[1].view;
  EXPECT_TRUE(std::isnan(out.load({0, 0, 0})));
  EXPECT_EQ(out.load({1, 0, 0}), exact.outputs[0].view.load({1, 0, 0}));
  EXPECT_TRUE(std::isnan(lse.load({0, 0})));
  EXPECT_TRUE(std::isnan(lse.load({1, 0})));
}

}  // namespace
}  // namespace quire::test
