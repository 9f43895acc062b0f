// SPDX-License-Identifier: Apache-2.0
#include "quire/tile_geometry.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(SwizzleGranularity, NoSwizzleIsSixteenBytesNotZero) {
  EXPECT_EQ(swizzle_granularity(DType::bf16, Swizzle::none), 8);
  EXPECT_EQ(swizzle_granularity(DType::fp8_e4m3, Swizzle::none), 16);
  EXPECT_EQ(swizzle_granularity(DType::f32, Swizzle::none), 4);
}

TEST(SwizzleGranularity, SpansDoublePerMode) {
  EXPECT_EQ(swizzle_granularity(DType::bf16, Swizzle::b32), 16);
  EXPECT_EQ(swizzle_granularity(DType::bf16, Swizzle::b64), 32);
  EXPECT_EQ(swizzle_granularity(DType::bf16, Swizzle::b128), 64);
  EXPECT_EQ(swizzle_granularity(DType::fp8_e4m3, Swizzle::b128), 128);
}

TEST(PaddedDepth, RoundsUpToWholeGranules) {
  EXPECT_EQ(padded_depth(DType::bf16, Swizzle::b128, 64), 64);
  EXPECT_EQ(padded_depth(DType::bf16, Swizzle::b128, 80), 128);
  EXPECT_EQ(padded_depth(DType::fp8_e4m3, Swizzle::b64, 576), 576);
  EXPECT_EQ(padded_depth(DType::fp8_e4m3, Swizzle::b128, 576), 640);
  EXPECT_EQ(depth_chunks(DType::bf16, Swizzle::b128, 80), 2);
}

}  // namespace
}  // namespace quire
