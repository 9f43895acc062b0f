// SPDX-License-Identifier: Apache-2.0
// The hardware's limits on a tensor map, one by one.
#include "quire/tile_descriptor.h"

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "quire/error.h"

namespace quire {
namespace {

TileDescriptor good() {
  TileDescriptor tile;
  tile.dtype = DType::bf16;
  tile.rank = 3;
  tile.dims = {128, 8, 4096};
  tile.strides_bytes = {256, 2048};
  tile.box = {64, 1, 64};
  tile.swizzle = Swizzle::b128;
  return tile;
}

// The field that the error names, or "" if the descriptor is valid.
std::string fault_of(const TileDescriptor& tile, std::uintptr_t base = 0) {
  try {
    validate_descriptor(tile, base);
  } catch (const Error& error) {
    return error.argument();
  }
  return "";
}

std::string fault_after(const std::function<void(TileDescriptor&)>& change) {
  TileDescriptor tile = good();
  change(tile);
  return fault_of(tile);
}

TEST(ValidateDescriptor, GoodOnePasses) {
  EXPECT_EQ(fault_of(good(), 256), "");
}

TEST(ValidateDescriptor, RankIsAtMostFive) {
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.rank = 6; }), "rank");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.rank = 0; }), "rank");
}

TEST(ValidateDescriptor, BoxIsAtMost256) {
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.box[2] = 256; }), "");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.box[2] = 257; }), "box[2]");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.box[1] = 0; }), "box[1]");
}

TEST(ValidateDescriptor, InnerBoxFitsTheSwizzleSpan) {
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.box[0] = 128; }), "box[0]");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.swizzle = Swizzle::b64; }), "box[0]");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) {
              tile.box[0] = 128;
              tile.swizzle = Swizzle::none;
            }),
            "");
}

TEST(ValidateDescriptor, InnerBoxIsAMultipleOfSixteenBytes) {
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.box[0] = 12; }), "box[0]");
}

TEST(ValidateDescriptor, StridesAreMultiplesOfSixteenBelowTwoToTheForty) {
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.strides_bytes[0] = 264; }),
            "strides_bytes[0]");
  EXPECT_EQ(
      fault_after([](TileDescriptor& tile) { tile.strides_bytes[1] = std::int64_t{1} << 40; }),
      "strides_bytes[1]");
  EXPECT_EQ(fault_after(
                [](TileDescriptor& tile) { tile.strides_bytes[1] = (std::int64_t{1} << 40) - 16; }),
            "");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.strides_bytes[1] = -16; }),
            "strides_bytes[1]");
}

TEST(ValidateDescriptor, DimsAreInOneToTwoToTheThirtyTwo) {
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.dims[2] = std::int64_t{1} << 32; }), "");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.dims[2] = (std::int64_t{1} << 32) + 1; }),
            "dims[2]");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.dims[0] = 0; }), "dims[0]");
}

TEST(ValidateDescriptor, BaseIsAlignedToSixteenBytes) {
  EXPECT_EQ(fault_of(good(), 8), "base");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.base_offset_bytes = 520; }), "base");
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.base_offset_bytes = -2048; }), "");
  TileDescriptor tile = good();
  tile.base_offset_bytes = 8;
  EXPECT_EQ(fault_of(tile, 8), "");
}

TEST(ValidateDescriptor, PackedFourBitTypesAreRefused) {
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.dtype = DType::u4; }), "dtype");
}

TEST(ValidateDescriptor, ElementStridesAreOneToEight) {
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.element_strides[1] = 9; }),
            "element_strides[1]");
}

TEST(ValidateDescriptor, UnusedDimensionsAreNotChecked) {
  EXPECT_EQ(fault_after([](TileDescriptor& tile) { tile.dims[4] = -1; }), "");
}

TEST(Descriptor, DescribesItself) {
  EXPECT_EQ(good().describe(), "bf16 dims(128, 8, 4096) strides(256, 2048) box(64, 1, 64) b128");
  TileDescriptor tile = good();
  tile.l2_promotion = L2Promotion::b128;
  tile.base_offset_bytes = -512;
  EXPECT_EQ(tile.describe(),
            "bf16 dims(128, 8, 4096) strides(256, 2048) box(64, 1, 64) b128 l2_b128 at -512");
}

TEST(Descriptor, EqualityIsByValue) {
  TileDescriptor tile = good();
  EXPECT_EQ(tile, good());
  tile.base_offset_bytes = 16;
  EXPECT_NE(tile, good());
}

TEST(Descriptor, BoxBytesAreTheTransactionOfOneCopy) {
  EXPECT_EQ(good().box_bytes(), 64 * 64 * 2);
}

}  // namespace
}  // namespace quire
