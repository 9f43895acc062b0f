// SPDX-License-Identifier: Apache-2.0
// compress_keys on every target: no bit depends on the threads or on how tokens came, and rows lie where the oracle
// has them. How close they are is what `quire check` asks.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cpu/row_target.h"
#include "quire/ops/compress_keys.h"
#include "reference/compress_keys.h"
#include "support/host_tensor.h"

namespace quire::cpu {
namespace {

using test::HostTensor;

constexpr std::int64_t kWidth = 70;
constexpr std::int64_t kRope = 10;
constexpr std::int64_t kRatio = 4;
constexpr std::int64_t kPages = 12;  // of 3 rows, for either sequence half of them

class RowsCompress : public RowTarget {
 protected:
  // Pages of e4m3 rows with powers of two, and the state of two sequences; 0xff at first.
  struct Memory {
    std::vector<std::byte> blocks =
        std::vector<std::byte>(kPages * 3 * (kWidth - kRope + 2 * kRope), std::byte{0xff});
    std::vector<std::byte> scales = std::vector<std::byte>(kPages * 3 * 2, std::byte{0xff});
    HostTensor state = HostTensor::filled(DType::f32, {2, 2 * kRatio, 2, 2 * kWidth}, -1);

    bool operator==(const Memory& other) const {
      return blocks == other.blocks && scales == other.scales &&
             state.bytes() == other.state.bytes();
    }
  };

  // The tokens [first, first + count) of either sequence, of which `cached` came before.
  void step(Memory& memory, std::vector<std::uint32_t> cached, std::vector<std::uint32_t> count,
            int threads, bool by_oracle = false) {
    std::vector<std::uint32_t> offsets{0, count[0], count[0] + count[1]};
    const std::int64_t columns = 2 * kWidth;
    HostTensor kv(DType::bf16, {offsets[2], columns});
    HostTensor gate(DType::bf16, {offsets[2], columns});
    for (std::int64_t b = 0; b < 2; ++b) {
      const auto bytes = static_cast<std::size_t>(2 * columns);
      for (std::uint32_t i = 0; i < count[b]; ++i) {
        const std::size_t from = (static_cast<std::size_t>(b) * 64 + cached[b] + i) * bytes;
        std::memcpy(&kv.bytes()[(offsets[b] + i) * bytes], &all_kv_.bytes()[from], bytes);
        std::memcpy(&gate.bytes()[(offsets[b] + i) * bytes], &all_gate_.bytes()[from], bytes);
      }
    }
    CompressKeysArgs args{
        .kv = kv.view(),
        .gate = gate.view(),
        .bias = bias_.view(),
        .row_offsets = TensorView::contiguous(offsets.data(), DType::u32, {3}),
        .cache = {.blocks = TensorView::contiguous(memory.blocks.data(), DType::u8,
                                                   {kPages, 1, 1, 3, 1, kWidth + kRope}),
                  .cache_lengths = TensorView::contiguous(cached.data(), DType::u32, {2}),
                  .page_table = TensorView::contiguous(table_.data(), DType::u32, {2, kPages / 2}),
                  .scales = TensorView::contiguous(memory.scales.data(), DType::e8m0,
                                                   {kPages, 1, 1, 3, 1, 2}),
                  .row_format = RowFormat::mla_fp8_e8m0(kWidth - kRope, kRope, 32)},
        .gamma = gamma_.view(),
        .freqs_cis = freqs_.view(),
        .state = memory.state.view()};
    if (by_oracle) return reference::compress_keys(args);
    ASSERT_EQ(supports(args, context(threads)).kernel, kernel("compress_keys"));
    compress_keys(args, context(threads));
  }

  HostTensor all_kv_ = HostTensor::random(DType::bf16, {2, 64, 2 * kWidth}, 3);
  HostTensor all_gate_ = HostTensor::random(DType::bf16, {2, 64, 2 * kWidth}, 5, 4.0);
  HostTensor bias_ = HostTensor::random(DType::f32, {kRatio, 2 * kWidth}, 7);
  HostTensor gamma_ = HostTensor::random(DType::f32, {kWidth}, 9);
  HostTensor freqs_ = HostTensor::random(DType::f32, {64, kRope}, 11);
  std::vector<std::uint32_t> table_{3, 0, 7, 1, 9, 11, 2, 5, 4, 6, 8, 10};
};

TEST_P(RowsCompress, NoBitDependsOnThreadsOrOnHowTokensCame) {
  Memory wanted;
  step(wanted, {0, 0}, {61, 18}, 1);
  for (const int threads : kThreadCounts) {
    Memory whole;
    step(whole, {0, 0}, {61, 18}, threads);
    EXPECT_TRUE(whole == wanted) << threads << " threads";
  }
  Memory pieces;
  step(pieces, {0, 0}, {5, 2}, 3);
  step(pieces, {5, 2}, {30, 0}, 3);
  for (std::uint32_t i = 0; i < 16; ++i) step(pieces, {35 + i, 2 + i}, {1, 1}, 2);
  step(pieces, {51, 18}, {10, 0}, 16);
  EXPECT_TRUE(pieces == wanted);
}

// The oracle sums in doubles: nearly all codes are the same, and what is not written is.
TEST_P(RowsCompress, RowsStandWhereTheOracleHasThem) {
  Memory wanted;
  Memory memory;
  step(wanted, {0, 0}, {61, 18}, 1, /*by_oracle=*/true);
  step(memory, {0, 0}, {61, 18}, 2);
  std::size_t differences = 0;
  for (std::size_t i = 0; i < wanted.blocks.size(); ++i) {
    differences += memory.blocks[i] != wanted.blocks[i] ? 1 : 0;
  }
  EXPECT_LT(differences, wanted.blocks.size() / 200);
  EXPECT_EQ(memory.scales, wanted.scales);
  EXPECT_EQ(memory.state.bytes(), wanted.state.bytes());
}

INSTANTIATE_TEST_SUITE_P(Targets, RowsCompress, kEveryTarget, target_name);

}  // namespace
}  // namespace quire::cpu
