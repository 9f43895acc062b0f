// SPDX-License-Identifier: Apache-2.0
#include "reference/compress_keys.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/host_tensor.h"

namespace quire::reference {
namespace {

using test::HostTensor;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Rows of two columns, whose pair is rotated; one sequence.
struct Problem {
  HostTensor kv;
  HostTensor gate;
  HostTensor bias;
  HostTensor state;
  HostTensor gamma = HostTensor::of(DType::f32, {2}, {1, 1});
  // Position p turns by p quarters.
  HostTensor freqs = HostTensor::of(DType::f32, {5, 2}, {1, 0, 0, 1, -1, 0, 0, -1, 1, 0});
  std::uint32_t cached = 0;
  std::vector<std::uint32_t> table{0, 1};
  std::array<float, 8> rows{};  // pages of two rows

  void run(std::int64_t tokens) {
    rows.fill(-7);
    std::array<std::uint32_t, 2> offsets{0, static_cast<std::uint32_t>(tokens)};
    compress_keys(
        {.kv = kv.view(),
         .gate = gate.view(),
         .bias = bias.view(),
         .row_offsets = TensorView::contiguous(offsets.data(), DType::u32, {2}),
         .cache = {.blocks = TensorView::contiguous(rows.data(), DType::f32, {2, 1, 1, 2, 1, 2}),
                   .cache_lengths = TensorView::contiguous(&cached, DType::u32, {1}),
                   .page_table = TensorView::contiguous(table.data(), DType::u32, {1, 2})},
         .gamma = gamma.view(),
         .freqs_cis = freqs.view(),
         .epsilon = 1e-300,
         .state = state.view()});
  }
};

// Without gates a row is the mean of its tokens; (3, 1) has the mean square 5.
TEST(CompressKeys, EqualGatesPoolTheMean) {
  Problem problem{.kv = HostTensor::of(DType::f32, {3, 2}, {2, 0, 4, 2, 9, 9}),
                  .gate = HostTensor::of(DType::f32, {3, 2}, {0, 0, 0, 0, 5, 5}),
                  .bias = HostTensor::of(DType::f32, {2, 2}, {1, -2, 1, -2}),
                  .state = HostTensor::filled(DType::f32, {1, 2, 2, 2}, kNaN)};
  problem.run(3);
  const double norm = std::sqrt(5.0);
  EXPECT_EQ(problem.rows[0], static_cast<float>(3 / norm));
  EXPECT_EQ(problem.rows[1], static_cast<float>(1 / norm));
  for (std::size_t i = 2; i < 8; ++i) EXPECT_EQ(problem.rows[i], -7);  // the third token waits
  // Rows 0 and 1 of the state: tokens 2 and 1, kv before gate.
  EXPECT_EQ(problem.state.values(), (std::vector<double>{9, 9, 5, 5, 4, 2, 0, 0}));
}

// Softmax of (log 3, 0) is (3/4, 1/4), column by column; the bias belongs to the token's place in its window.
TEST(CompressKeys, GatesAndBiasChooseByColumn) {
  Problem problem{.kv = HostTensor::of(DType::f32, {2, 2}, {4, 8, 0, 4}),
                  .gate = HostTensor::of(DType::f32, {2, 2}, {std::log(3.0), 0, 0, 0}),
                  .bias = HostTensor::of(DType::f32, {2, 2}, {0, 0, 0, std::log(3.0)}),
                  .state = HostTensor::filled(DType::f32, {1, 2, 2, 2}, kNaN)};
  problem.run(2);
  const double norm = std::sqrt((9.0 + 25.0) / 2);  // of (3, 5)
  EXPECT_NEAR(problem.rows[0], 3 / norm, 1e-6);
  EXPECT_NEAR(problem.rows[1], 5 / norm, 1e-6);
}

// The second row stands at position 2, half a turn; its first token came with an earlier call.
TEST(CompressKeys, WindowsGoOnFromTheStateAndRowsTurnByTheirFirstToken) {
  Problem problem{
      .kv = HostTensor::of(DType::f32, {1, 2}, {4, 2}),
      .gate = HostTensor::of(DType::f32, {1, 2}, {0, 0}),
      .bias = HostTensor::of(DType::f32, {2, 2}, {0, 0, 0, 0}),
      .state = HostTensor::of(DType::f32, {1, 2, 2, 2}, {2, 0, 0, 0, kNaN, kNaN, kNaN, kNaN}),
      .cached = 3};
  problem.run(1);
  const double norm = std::sqrt(5.0);
  EXPECT_EQ(problem.rows[0], -7);
  EXPECT_EQ(problem.rows[2], static_cast<float>(-3 / norm));
  EXPECT_EQ(problem.rows[3], static_cast<float>(-1 / norm));
  EXPECT_EQ(problem.state.at({0, 1, 0, 0}), 4);  // token 3 in row 1
}

// Series a (columns 0, 1) of the window before, series b (2, 3) of a row's own window: row 0 is the mean of b alone.
TEST(CompressKeys, OverlapPoolsTheFirstHalfOfTheWindowBefore) {
  Problem problem{.kv = HostTensor::of(DType::f32, {4, 4},
                                       {10, 20, 1, 1,      //
                                        30, 40, 3, 1,      //
                                        kNaN, kNaN, 4, 8,  //
                                        kNaN, kNaN, 4, 8}),
                  .gate = HostTensor::filled(DType::f32, {4, 4}, 0),
                  .bias = HostTensor::filled(DType::f32, {2, 4}, 0),
                  .state = HostTensor::filled(DType::f32, {1, 4, 2, 4}, kNaN)};
  problem.run(4);
  EXPECT_NEAR(problem.rows[0], 2 / std::sqrt(2.5), 1e-6);
  EXPECT_NEAR(problem.rows[1], 1 / std::sqrt(2.5), 1e-6);
  // (10 + 30 + 4 + 4) / 4 = 12 and (20 + 40 + 8 + 8) / 4 = 19, half a turn.
  const double norm = std::sqrt((144.0 + 361.0) / 2);
  EXPECT_NEAR(problem.rows[2], -12 / norm, 1e-6);
  EXPECT_NEAR(problem.rows[3], -19 / norm, 1e-6);
}

TEST(CompressKeys, GatesOfMinusInfinityTakeNoPart) {
  const double infinity = std::numeric_limits<double>::infinity();
  Problem problem{.kv = HostTensor::of(DType::f32, {2, 2}, {3, 1, 100, 100}),
                  .gate = HostTensor::of(DType::f32, {2, 2}, {0, 0, -infinity, -infinity}),
                  .bias = HostTensor::filled(DType::f32, {2, 2}, 0),
                  .state = HostTensor::filled(DType::f32, {1, 2, 2, 2}, 0)};
  problem.run(2);
  EXPECT_EQ(problem.rows[0], static_cast<float>(3 / std::sqrt(5.0)));
}

}  // namespace
}  // namespace quire::reference
