// SPDX-License-Identifier: Apache-2.0
#include "reference/mask.h"

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;

constexpr std::int64_t kCacheLength = 5;
constexpr std::int64_t kNewTokens = 4;
constexpr std::int64_t kFirstRow = 3;  // tokens of other sequences stand before ours

Token token_at(std::int64_t local) {
  return {
      .index = kFirstRow + local, .sequence = 1, .local = local, .position = kCacheLength + local};
}

struct MaskCase {
  const char* name;
  Mask mask;
  std::function<bool(int q, int k)> shows;  // written without the library's words
};

std::ostream& operator<<(std::ostream& stream, const MaskCase& mask_case) {
  return stream << mask_case.name;
}

class MaskTest : public testing::TestWithParam<MaskCase> {};

TEST_P(MaskTest, agrees_with_its_definition_everywhere) {
  int shown = 0;
  for (std::int64_t local = 0; local < kNewTokens; ++local) {
    for (std::int64_t key = 0; key < kCacheLength + kNewTokens; ++key) {
      const bool expected =
          GetParam().shows(static_cast<int>(kCacheLength + local), static_cast<int>(key));
      EXPECT_EQ(is_visible(GetParam().mask, token_at(local), key), expected)
          << "query " << kCacheLength + local << ", key " << key;
      shown += expected;
    }
  }
  EXPECT_GT(shown, 0);
}

const Mask kCausal = Mask::causal();

INSTANTIATE_TEST_SUITE_P(
    Kinds, MaskTest,
    testing::Values(
        MaskCase{"full", Mask::full(), [](int, int) { return true; }},
        MaskCase{"causal", kCausal, [](int q, int k) { return q >= k; }},
        MaskCase{"default", Mask(), [](int q, int k) { return q >= k; }},
        MaskCase{"window_1", Mask::sliding_window(1), [](int q, int k) { return q == k; }},
        MaskCase{"window_3", Mask::sliding_window(3),
                 [](int q, int k) { return k > q - 3 && k < q + 3; }},
        MaskCase{"window_100", Mask::sliding_window(100), [](int, int) { return true; }},
        MaskCase{"chunked_1", Mask::chunked(1), [](int q, int k) { return q == k; }},
        MaskCase{"chunked_3", Mask::chunked(3), [](int q, int k) { return q / 3 == k / 3; }},
        MaskCase{"causal_window", kCausal& Mask::sliding_window(2),
                 [](int q, int k) { return k == q || k == q - 1; }},
        MaskCase{"window_causal", Mask::sliding_window(2) & kCausal,
                 [](int q, int k) { return k == q || k == q - 1; }},
        MaskCase{"causal_chunked", kCausal& Mask::chunked(4),
                 [](int q, int k) { return k <= q && k / 4 == q / 4; }},
        MaskCase{"window_or_chunk", Mask::sliding_window(2) | Mask::chunked(3),
                 [](int q, int k) { return (k > q - 2 && k < q + 2) || q / 3 == k / 3; }},
        MaskCase{
            "and_binds_what_it_joins", kCausal&(Mask::sliding_window(2) | Mask::chunked(3)),
            [](int q, int k) { return k <= q && ((k > q - 2 && k < q + 2) || q / 3 == k / 3); }},
        MaskCase{"or_of_ands", (kCausal & Mask::chunked(2)) | (Mask::full() & Mask::chunked(5)),
                 [](int q, int k) { return (k <= q && k / 2 == q / 2) || k / 5 == q / 5; }}),
    [](const auto& info) { return std::string(info.param.name); });

// The bits of tokens 3 … 6: each sees itself; the second sees the first; the others nobody else.
HostTensor tree_bits() {
  return HostTensor::of(DType::u8, {7, 4}, {9, 9, 9, 9,  9, 9, 9, 9, 9, 9, 9, 9,  //
                                            1, 0, 0, 0,                           //
                                            1, 1, 0, 0,                           //
                                            0, 0, 1, 0,                           //
                                            0, 0, 0, 255});
}

TEST(TreeMaskTest, shows_cached_keys_and_the_new_ones_of_its_row) {
  const HostTensor bits = tree_bits();
  const Mask mask = Mask::tree(bits.view());
  const bool expected[kNewTokens][kNewTokens] = {{true, false, false, false},
                                                 {true, true, false, false},
                                                 {false, false, true, false},
                                                 {false, false, false, true}};
  for (std::int64_t local = 0; local < kNewTokens; ++local) {
    for (std::int64_t key = 0; key < kCacheLength; ++key) {
      EXPECT_TRUE(is_visible(mask, token_at(local), key));
    }
    for (std::int64_t key = 0; key < kNewTokens; ++key) {
      EXPECT_EQ(is_visible(mask, token_at(local), kCacheLength + key), expected[local][key]);
    }
  }
}

TEST(TreeMaskTest, reads_strided_bits) {
  const HostTensor bits = HostTensor::of(DType::u8, {4, 7}, {9, 9, 9, 1, 1, 0, 0,  //
                                                             9, 9, 9, 0, 1, 0, 0,  //
                                                             9, 9, 9, 0, 0, 1, 0,  //
                                                             9, 9, 9, 0, 0, 0, 1});
  TensorView transposed = bits.view();
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  const HostTensor plain = tree_bits();
  for (std::int64_t local = 0; local < kNewTokens; ++local) {
    for (std::int64_t key = 0; key < kCacheLength + kNewTokens; ++key) {
      EXPECT_EQ(is_visible(Mask::tree(transposed), token_at(local), key),
                is_visible(Mask::tree(plain.view()), token_at(local), key));
    }
  }
}

TEST(TreeMaskTest, hides_new_keys_past_its_columns) {
  const HostTensor bits = HostTensor::filled(DType::u8, {7, 2}, 1);
  // In memory the next row follows at once, and its bits are set.
  EXPECT_TRUE(is_visible(Mask::tree(bits.view()), token_at(0), kCacheLength + 1));
  EXPECT_FALSE(is_visible(Mask::tree(bits.view()), token_at(0), kCacheLength + 2));
}

TEST(TreeMaskTest, joins_with_other_masks) {
  const HostTensor bits = HostTensor::filled(DType::u8, {7, 4}, 1);
  const Mask mask = Mask::tree(bits.view()) & Mask::causal() & Mask::sliding_window(2);
  EXPECT_TRUE(is_visible(mask, token_at(2), kCacheLength + 2));
  EXPECT_TRUE(is_visible(mask, token_at(2), kCacheLength + 1));
  EXPECT_FALSE(is_visible(mask, token_at(2), kCacheLength));
  EXPECT_FALSE(is_visible(mask, token_at(2), kCacheLength + 3));
}

// Of tokens 3 … 6, whose positions are 5 … 8; the rows before belong to others.
HostTensor bounds() {
  return HostTensor::of(DType::i32, {7, 2},
                        {0, 99, 0, 99, 0, 99,          //
                         2, 6,                         //
                         7, 4,                         //
                         -2147483648.0, 2147483647.0,  //
                         8, 8});
}

TEST(KeyIntervalsTest, show_the_keys_between_their_bounds) {
  const HostTensor both = bounds();
  const Mask mask = Mask::key_intervals(test::column(both.view(), 0), test::column(both.view(), 1));
  for (std::int64_t key = 0; key < kCacheLength + kNewTokens; ++key) {
    EXPECT_EQ(is_visible(mask, token_at(0), key), key >= 2 && key < 6) << key;
    EXPECT_FALSE(is_visible(mask, token_at(1), key)) << key;
    EXPECT_TRUE(is_visible(mask, token_at(2), key)) << key;
    EXPECT_FALSE(is_visible(mask, token_at(3), key)) << key;
  }
}

// An image among text: its tokens see each other, and everybody what stands before.
TEST(KeyIntervalsTest, join_with_other_masks) {
  const HostTensor both = bounds();
  const Mask own = Mask::key_intervals(test::column(both.view(), 0), test::column(both.view(), 1));
  const Mask narrower = own & Mask::causal() & Mask::sliding_window(3);
  const Mask wider = own | Mask::causal();
  for (std::int64_t key = 0; key < kCacheLength + kNewTokens; ++key) {
    EXPECT_EQ(is_visible(narrower, token_at(0), key), key >= 3 && key <= 5) << key;
    EXPECT_EQ(is_visible(wider, token_at(0), key), key <= 5) << key;
    EXPECT_EQ(is_visible(wider, token_at(1), key), key <= 6) << key;
    EXPECT_TRUE(is_visible(wider, token_at(2), key)) << key;
  }
}

}  // namespace
}  // namespace quire::reference
