// SPDX-License-Identifier: Apache-2.0
// A packed weight whose bytes went somewhere else and came back.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ops/arena.h"
#include "quire/error.h"
#include "quire/pack_weight.h"

namespace quire::test {
namespace {

constexpr std::int64_t kRows = 40;
constexpr std::int64_t kColumns = 256;

class PackedViewTest : public testing::Test {
 protected:
  PackedViewTest() {
    Weight plain;
    plain.format = WeightFormat::int4;
    plain.group_size = 64;
    plain.data = arena.random(DType::u4, {kRows, kColumns});
    plain.scale = arena.filled(DType::f32, {kRows, kColumns / 64}, 0.5);
    plain.perm = arena.filled(DType::i32, {kColumns}, 0.0);
    for (std::int64_t k = 0; k < kColumns; ++k)
      plain.perm->store({k}, static_cast<double>(kColumns - 1 - k));
    packed = pack_weight(plain, storage(packed_bytes(plain)));
  }

  TensorView storage(std::int64_t bytes) {
    const TensorView more = arena.filled(DType::u8, {bytes + 64}, 0.0);
    const auto misaligned = reinterpret_cast<std::uintptr_t>(more.data) % 64;
    return TensorView::contiguous(more.as<std::byte>() + (64 - misaligned) % 64, DType::u8,
                                  {bytes});
  }
  TensorView copied() {
    const TensorView copy = storage(packed.data.shape[0]);
    std::memcpy(copy.data, packed.data.data, static_cast<std::size_t>(packed.data.shape[0]));
    return copy;
  }
  // The form alone, as a file would bring it.
  Weight form() const {
    Weight form = packed;
    form.data = TensorView{};
    form.perm = TensorView{};
    return form;
  }
  void expect_refusal(const Weight& weight, const TensorView& view, const std::string& argument,
                      const std::string& part) {
    try {
      packed_view(weight, view);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.op(), "packed_view");
      EXPECT_EQ(error.argument(), argument);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  Arena arena;
  Weight packed;
};

TEST_F(PackedViewTest, ViewsTheNewMemoryAsTheOldWasViewed) {
  const TensorView copy = copied();
  const Weight view = packed_view(form(), copy);
  EXPECT_EQ(view.data.data, copy.data);
  EXPECT_EQ(view.data.describe(), packed.data.describe());
  EXPECT_EQ(view.packed, packed.packed);
  EXPECT_EQ(view.packing, packed.packing);
  ASSERT_TRUE(view.perm.has_value());
  const auto distance = [](const Weight& weight) {
    return weight.perm->as<std::byte>() - weight.data.as<std::byte>();
  };
  EXPECT_EQ(distance(view), distance(packed));
  EXPECT_EQ(view.perm->load({3}), kColumns - 4.0);
}

TEST_F(PackedViewTest, RefusesOtherSizesOrdersAndPermutations) {
  const TensorView copy = copied();
  expect_refusal(form(), storage(packed.data.shape[0] - 64), "storage", "u8 of at least");
  Weight other = form();
  other.packing = WeightPacking::fragments_64;
  expect_refusal(other, copy, "weight", "packed as a kernel of this machine reads it");
  other.packing = WeightPacking::none;
  expect_refusal(other, copy, "weight", "packed as a kernel of this machine reads it");
  packed_view(form(), copy).perm->store({0}, 0.0);
  expect_refusal(form(), copy, "weight.perm", "a permutation");
}

TEST_F(PackedViewTest, RefusesAShapeThatNoPackingRecords) {
  const TensorView copy = copied();
  const std::vector<std::pair<std::function<void(Weight&)>, const char*>> faults = {
      {[](Weight& w) { w.packed.rows = -1; }, "at most 2^56 numbers"},
      {[](Weight& w) { w.packed.rows = std::int64_t{1} << 62; }, "at most 2^56 numbers"},
      {[](Weight& w) { w.packed.columns = -64; }, "at most 2^56 numbers"},
      {[](Weight& w) { w.packed.columns = 250; }, "a divisor of 250 columns"},
      {[](Weight& w) { w.group_size = 0; }, "32, 64 or 128"},
      {[](Weight& w) { w.packed.scale_dtype = DType::i64; }, "dtypes of int4"},
      {[](Weight& w) { w.packed.scale_group = 3; }, "a scale for 0 (all) or 128"},
  };
  for (const auto& [fault, part] : faults) {
    Weight weight = form();
    fault(weight);
    expect_refusal(
        weight, copy,
        weight.group_size == 0 || weight.packed.columns == 250 ? "weight.group_size" : "weight",
        part);
  }
}

}  // namespace
}  // namespace quire::test
