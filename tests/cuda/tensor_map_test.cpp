// SPDX-License-Identifier: Apache-2.0
// TMA itself against the host simulator of tests/core: the descriptor values mean to
// the hardware what core says they mean. Skipped where there is no GPU with tensor maps.
#include "cuda/common/runtime/tensor_map.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "box_copy.h"
#include "core/tile_simulator.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/status.h"
#include "gtest/gtest.h"
#include "quire/error.h"
#include "quire/tile_builders.h"

namespace quire::cuda {
namespace {

using Coordinate = std::array<std::int64_t, 5>;

struct Copy {
  std::string name;
  TileDescriptor descriptor;
  std::vector<Coordinate> coordinates;
};

std::ostream& operator<<(std::ostream& out, const Copy& copy) {
  return out << copy.name;
}

constexpr std::int64_t kLead =
    4096;  // bytes before the operand's base that the ragged tile may name
constexpr std::int64_t kAllocation = 1 << 20;

// 64 rows of 2 heads × 128 bf16, as a layer of a paged cache looks: row stride = heads · row.
const RowMatrix kBf16{.dtype = DType::bf16,
                      .num_rows = 64,
                      .num_heads = 2,
                      .row_width = 128,
                      .row_stride_bytes = 512,
                      .head_stride_bytes = 256};
// A 640-byte row: 512 fp8 and 64 bf16 behind them.
const RowMatrix kMixed{.dtype = DType::fp8_e4m3,
                       .num_rows = 100,
                       .num_heads = 1,
                       .row_width = 640,
                       .row_stride_bytes = 640,
                       .head_stride_bytes = 640};
// 80 columns: the second granule of 64 is incomplete.
const RowMatrix kOdd{.dtype = DType::bf16,
                     .num_rows = 33,
                     .num_heads = 3,
                     .row_width = 80,
                     .row_stride_bytes = 480,
                     .head_stride_bytes = 160};

// 96 rows of one head.
const RowMatrix kWeight{
    .dtype = DType::bf16, .num_rows = 96, .row_width = 128, .row_stride_bytes = 256};
// 4 pages of 16 tokens, 2 heads × 128 bf16, of one layer of three: page 4 does not exist.
const PageMatrix kPages{.dtype = DType::bf16,
                        .num_pages = 4,
                        .page_size = 16,
                        .num_heads = 2,
                        .row_width = 128,
                        .page_stride_bytes = 3 * 16 * 512,
                        .row_stride_bytes = 512,
                        .head_stride_bytes = 256};
// 5 pages of 16 tokens, rows of 576 bytes: nine granules of 64.
const PageMatrix kLatentPages{.dtype = DType::u8,
                              .num_pages = 5,
                              .page_size = 16,
                              .row_width = 576,
                              .page_stride_bytes = 2 * 16 * 576,
                              .row_stride_bytes = 576};

void add_page_copies(std::vector<Copy>& list) {
  list.push_back({"pages",
                  make_tile(kPages, {.box_rows = 16}),
                  {{64, 0, 1, 3}, {0, 8, 0, 0}, {0, 0, 0, 4}, {0, 0, 1, 0x7FFFFFFF}}});
  list.push_back({"folded_pages",
                  make_folded_tile(kPages, {.box_rows = 8, .fold_chunks = 2}),
                  {{0, 8, 0, 1, 2}, {0, 0, 0, 0, 4}}});
  list.push_back(
      {"folded_latent_pages",
       make_folded_tile(
           kLatentPages,
           {.swizzle = Swizzle::b64, .box_rows = 16, .fold_chunks = 1, .heads = HeadAxis::absent}),
       {{0, 0, 8, 4}, {0, 0, 0, 5}}});
  list.push_back(
      {"latent_pages_as_i64",
       make_tile(columns_as(kLatentPages, DType::i64, 0, 72), {.swizzle = Swizzle::none,
                                                               .box_columns = 82,
                                                               .box_rows = 16,
                                                               .heads = HeadAxis::absent}),
       {{0, 0, 4}, {0, 0, 5}}});
  list.push_back(
      {"scales_of_pages",
       make_scale_tile(PageScaleMatrix{.num_pages = 4, .page_size = 64, .page_stride_bytes = 512},
                       32),
       {{32, 3}, {0, 4}}});
}

std::vector<Copy> copies() {
  const RaggedTileRequest ragged{.swizzle = Swizzle::b128, .tile_rows = 16};
  const std::vector<Coordinate> inside{{0, 0, 0}, {64, 1, 7}, {64, 0, 44}};
  std::vector<Copy> list;
  for (const Swizzle swizzle : {Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    list.push_back({"plain_" + std::string(name(swizzle)),
                    make_tile(kBf16, {.swizzle = swizzle, .box_rows = 16}), inside});
  }
  list.push_back(
      {"past_the_last_row", make_tile(kBf16, {.box_rows = 32}), {{0, 1, 54}, {0, 0, 1 << 30}}});
  // A view of one token may have any stride between tokens.
  RowMatrix one_row = kBf16;
  one_row.num_rows = 1;
  one_row.row_stride_bytes = 386;
  list.push_back(
      {"one_row_of_any_stride", make_tile(one_row, {.box_rows = 8}), {{0, 0, 0}, {64, 1, 0}}});
  list.push_back(
      {"incomplete_granule", make_tile(kOdd, {.box_rows = 8}), {{64, 2, 3}, {0, 2, 30}}});
  list.push_back({"latent_of_mixed_row",
                  make_tile(columns_as(kMixed, DType::fp8_e4m3, 0, 512),
                            {.swizzle = Swizzle::b64, .box_rows = 16}),
                  {{448, 0, 5}, {0, 0, 90}}});
  list.push_back({"rope_of_mixed_row",
                  make_tile(columns_as(kMixed, DType::bf16, 512, 64), {.box_rows = 16}),
                  {{0, 0, 0}, {0, 0, 95}}});
  list.push_back(
      {"bytes_as_i64",
       make_tile(columns_as(kMixed, DType::i64, 0, 80), {.swizzle = Swizzle::none, .box_rows = 4}),
       {{0, 0, 17}, {2, 0, 98}}});
  list.push_back({"folded_outer",
                  make_folded_tile(kBf16, {.box_rows = 16, .fold_chunks = 2}),
                  {{0, 8, 0, 1}, {0, 56, 0, 0}}});
  list.push_back({"grouped_heads",
                  make_grouped_tile(kOdd, {.box_rows = 4, .group_heads = 1, .box_groups = 3}),
                  {{0, 0, 7, 0}, {64, 0, 31, 1}}});
  list.push_back({"quad_ordered",
                  make_quad_ordered_tile(kWeight, {.box_groups = 2}),
                  {{0, 0, 0, 0, 0}, {64, 0, 0, 0, 2}}});
  list.push_back({"ragged",
                  make_ragged_tile(kBf16, ragged),
                  {ragged_coordinate(ragged, 64, 9, 5, 1), ragged_coordinate(ragged, 0, 0, 16, 0),
                   ragged_coordinate(ragged, 0, 3, 1, 1)}});
  list.push_back(
      {"scales",
       make_scale_tile(
           ScaleMatrix{
               .dtype = DType::f32, .num_heads = 2, .num_rows = 100, .head_stride_bytes = 416},
           32),
       {{0, 0}, {96, 1}}});
  add_page_copies(list);
  return list;
}

// Undoes the swizzle: within a span the 16-byte unit's number is XORed with the number of the
// 128-byte line.
std::vector<std::byte> unswizzle(const std::vector<std::byte>& shared, Swizzle swizzle) {
  const std::size_t mask = static_cast<std::size_t>(swizzle_bytes(swizzle) / 16 - 1);
  std::vector<std::byte> plain(shared.size());
  for (std::size_t at = 0; at < shared.size(); ++at) {
    plain[at] = shared[at ^ (((at >> 7) & mask) << 4)];
  }
  return plain;
}

class MappedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (num_devices() == 0) GTEST_SKIP() << "no GPU";
    if (device_facts(0).compute_major < 9)
      GTEST_SKIP() << "no tensor maps before compute capability 9.0";
    std::mt19937 random(11);
    for (std::byte& byte : host_) byte = static_cast<std::byte>(random());
    check(cudaMalloc(reinterpret_cast<void**>(&device_), host_.size()), "cudaMalloc");
    upload();
  }
  void TearDown() override { cudaFree(device_); }
  void upload() {
    check(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  std::vector<std::byte> host_ = std::vector<std::byte>(kAllocation);
  std::byte* device_ = nullptr;
};

class TensorMapTest : public MappedMemory, public ::testing::WithParamInterface<Copy> {};

TEST_P(TensorMapTest, HardwareCopiesTheBytesTheSimulatorPredicts) {
  const Copy& copy = GetParam();
  const quire::testing::TileSimulator simulator(host_, host_.data() + kLead);
  const TensorMap map = encode_tensor_map(copy.descriptor, device_ + kLead);
  for (const Coordinate& coordinate : copy.coordinates) {
    const std::int64_t bytes = copy.descriptor.box_bytes();
    const auto shared = copy_box(map, copy.descriptor.rank, coordinate, bytes);
    EXPECT_EQ(unswizzle(shared, copy.descriptor.swizzle),
              simulator.copy(copy.descriptor, coordinate))
        << copy.descriptor.describe() << " at " << coordinate[0] << ", " << coordinate[1] << ", "
        << coordinate[2];
  }
}

INSTANTIATE_TEST_SUITE_P(Copies, TensorMapTest, ::testing::ValuesIn(copies()),
                         [](const auto& info) { return info.param.name; });

class Tf32MapTest : public MappedMemory {};

// Ties go to even, NaN stays NaN even where only its last bits say so, numbers past the largest become
// infinite.
TEST_F(Tf32MapTest, NumbersAreRoundedOnTheirWay) {
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> rounded{
      {0x3F800FFF, 0x3F800000}, {0x3F801000, 0x3F800000}, {0x3F801001, 0x3F802000},
      {0xBF803000, 0xBF804000}, {0x3FFFF000, 0x40000000}, {0x7F7FEFFF, 0x7F7FE000},
      {0x7F7FF000, 0x7F800000}, {0xFF800000, 0xFF800000}, {0x7F800001, 0x7FFFE000},
      {0x00001000, 0x00000000}, {0x80003000, 0x80004000}, {0x007FFFFF, 0x00800000}};
  for (std::size_t i = 0; i < rounded.size(); ++i) {
    std::memcpy(host_.data() + 4 * i, &rounded[i].first, 4);
  }
  upload();
  const RowMatrix row{.dtype = DType::f32, .num_rows = 1, .row_width = 32, .row_stride_bytes = 128};
  const TileDescriptor tile = make_tile(
      row, {.swizzle = Swizzle::none, .box_columns = 32, .box_rows = 1, .heads = HeadAxis::absent});
  const auto shared = copy_box(encode_tf32_map(tile, device_), 2, {0, 0}, 128);
  for (std::size_t i = 0; i < rounded.size(); ++i) {
    std::uint32_t found = 0;
    std::memcpy(&found, shared.data() + 4 * i, 4);
    EXPECT_EQ(found, rounded[i].second) << std::hex << rounded[i].first;
  }
}

TEST(TensorMap, HardwareLimitIsNamedBeforeTheDriverIsAsked) {
  TileDescriptor descriptor = make_tile(kBf16, {.box_rows = 16});
  descriptor.box[2] = 257;
  EXPECT_THROW(encode_tensor_map(descriptor, nullptr), Error);
}

}  // namespace
}  // namespace quire::cuda
