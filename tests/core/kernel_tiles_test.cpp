// SPDX-License-Identifier: Apache-2.0
// The tiles that the sm90 kernels ask for, each for one usual problem, written out: what TMA is told must not change
// with the builders. A kernel's coordinates are in the order of the dims.
#include "gtest/gtest.h"
#include "quire/kv_layer_view.h"
#include "quire/tensor_view.h"
#include "quire/tile_builders.h"

namespace quire {
namespace {

RowMatrix rows(DType dtype, std::initializer_list<std::int64_t> shape) {
  return row_matrix_of(TensorView::contiguous(nullptr, dtype, shape));
}

// 1000 pages of 64 tokens; `sides` times as much memory between pages as one side of one layer takes.
KvLayerView pages(std::int64_t row_bytes, int heads, std::int64_t sides) {
  KvLayerView view;
  view.num_pages = 1000;
  view.page_size = 64;
  view.num_heads = heads;
  view.head_stride_bytes = row_bytes;
  view.token_stride_bytes = heads * row_bytes;
  view.page_stride_bytes = sides * 64 * heads * row_bytes;
  return view;
}

std::string describe(const TileDescriptor& tile) {
  EXPECT_NO_THROW(validate_descriptor(tile));
  return tile.describe();
}

TEST(KernelTiles, TokensOfAMatmul) {  // common/matmul/params.h
  const TileRequest request{
      .box_rows = 128, .heads = HeadAxis::absent, .l2_promotion = L2Promotion::b256};
  EXPECT_EQ(describe(make_tile(rows(DType::bf16, {2048, 4096}), request)),
            "bf16 dims(4096, 2048) strides(8192) box(64, 128) b128 l2_b256");
  EXPECT_EQ(describe(make_tile(rows(DType::fp8_e4m3, {4096, 512}), request)),
            "fp8_e4m3 dims(512, 4096) strides(512) box(128, 128) b128 l2_b256");
}

TEST(KernelTiles, WeightOfAMatmul) {  // sm90/fused_qkv_matmul, sm90/mla_prefill/project.cpp
  const QuadOrderedTileRequest request{.box_groups = 4, .l2_promotion = L2Promotion::b256};
  EXPECT_EQ(describe(make_quad_ordered_tile(rows(DType::bf16, {6144, 4096}), request)),
            "bf16 dims(4096, 2, 4, 4, 192) strides(8192, 65536, 16384, 262144) box(64, 2, 4, 4, 4) "
            "b128 l2_b256");
  EXPECT_EQ(describe(make_quad_ordered_tile(rows(DType::fp8_e4m3, {6144, 4096}), request)),
            "fp8_e4m3 dims(4096, 2, 4, 4, 192) strides(4096, 32768, 8192, 131072) "
            "box(128, 2, 4, 4, 4) b128 l2_b256");
}

TEST(KernelTiles, TokensOfInt4Weights) {  // sm90/fused_qkv_matmul/int4
  EXPECT_EQ(describe(make_folded_tile(rows(DType::bf16, {16, 4096}),
                                      {.box_rows = 16,
                                       .fold_chunks = 4,
                                       .heads = HeadAxis::absent,
                                       .l2_promotion = L2Promotion::b256})),
            "bf16 dims(64, 16, 64) strides(8192, 128) box(64, 16, 4) b128 l2_b256");
}

TEST(KernelTiles, QueriesOfPrefill) {  // sm90/flash_attention/prefill
  const TileRequest request{
      .box_columns = 64, .box_rows = 32, .box_heads = 4, .l2_promotion = L2Promotion::b256};
  EXPECT_EQ(describe(make_tile(rows(DType::bf16, {4096, 32, 128}), request)),
            "bf16 dims(128, 32, 4096) strides(256, 8192) box(64, 4, 32) b128 l2_b256");
}

TEST(KernelTiles, PagesOfPrefill) {
  TileRequest request{.box_columns = 64, .box_rows = 64, .l2_promotion = L2Promotion::b256};
  EXPECT_EQ(
      describe(make_tile(page_matrix_of(pages(256, 8, 2 * 32), DType::bf16, 128), request)),
      "bf16 dims(128, 64, 8, 1000) strides(2048, 256, 8388608) box(64, 64, 1, 1) b128 l2_b256");
  request.box_columns = 128;
  EXPECT_EQ(
      describe(make_tile(page_matrix_of(pages(128, 8, 2 * 32), DType::fp8_e4m3, 128), request)),
      "fp8_e4m3 dims(128, 64, 8, 1000) strides(1024, 128, 4194304) box(128, 64, 1, 1) b128 "
      "l2_b256");
}

TEST(KernelTiles, DequantizedAndTransposedBlocksOfPrefill) {
  EXPECT_EQ(
      describe(make_tile(rows(DType::bf16, {64 * 128, 128}), {.box_columns = 64,
                                                              .box_rows = 128,
                                                              .heads = HeadAxis::absent,
                                                              .l2_promotion = L2Promotion::b256})),
      "bf16 dims(128, 8192) strides(256) box(64, 128) b128 l2_b256");
  EXPECT_EQ(describe(make_tile(rows(DType::fp8_e4m3, {64 * 128, 128}),
                               {.box_columns = 128,
                                .box_rows = 128,
                                .heads = HeadAxis::absent,
                                .l2_promotion = L2Promotion::b256})),
            "fp8_e4m3 dims(128, 8192) strides(128) box(128, 128) b128 l2_b256");
}

TEST(KernelTiles, QueriesOfMlaPrefill) {  // sm90/mla_prefill/branch.cpp
  RowMatrix group = rows(DType::bf16, {1024, 128, 192});
  group.num_heads = 16;
  group.base_offset_bytes = 32 * group.head_stride_bytes;
  EXPECT_EQ(describe(make_tile(group, {.box_rows = 64, .l2_promotion = L2Promotion::b256})),
            "bf16 dims(192, 16, 1024) strides(384, 49152) box(64, 1, 64) b128 l2_b256 at +12288");
}

TEST(KernelTiles, ProjectedKeysOfMlaPrefill) {
  const TileRequest request{.box_rows = 128, .l2_promotion = L2Promotion::b256};
  EXPECT_EQ(describe(make_tile(rows(DType::bf16, {8192, 16, 256}), request)),
            "bf16 dims(256, 16, 8192) strides(512, 8192) box(64, 1, 128) b128 l2_b256");
  EXPECT_EQ(describe(make_tile(rows(DType::bf16, {8192, 64}), request)),
            "bf16 dims(64, 1, 8192) strides(128, 128) box(64, 1, 128) b128 l2_b256");
  const RowMatrix codes{.dtype = DType::fp8_e4m3,
                        .num_rows = 8192,
                        .num_heads = 16,
                        .row_width = 256,
                        .row_stride_bytes = 256,
                        .head_stride_bytes = 8192 * 256};
  EXPECT_EQ(describe(make_tile(codes, request)),
            "fp8_e4m3 dims(256, 16, 8192) strides(2097152, 256) box(128, 1, 128) b128 l2_b256");
  EXPECT_EQ(describe(make_tile(rows(DType::fp8_e4m3, {8192, 64}), request)),
            "fp8_e4m3 dims(64, 1, 8192) strides(64, 64) box(128, 1, 128) b128 l2_b256");
}

TEST(KernelTiles, StoredHeadsOfTheStationaryProjection) {  // sm90/mla_prefill/stationary
  TensorView y = TensorView::contiguous(nullptr, DType::bf16, {4096, 16, 256});
  y.strides[0] = 256;
  y.strides[1] = 4096 * 256;
  EXPECT_EQ(describe(make_folded_tile(row_matrix_of(y), {.box_rows = 16, .fold_chunks = 2})),
            "bf16 dims(64, 4096, 4, 16) strides(512, 128, 2097152) box(64, 16, 2, 1) b128");
  y.dtype = DType::fp8_e4m3;
  EXPECT_EQ(describe(make_folded_tile(row_matrix_of(y), {.box_rows = 16, .fold_chunks = 1})),
            "fp8_e4m3 dims(128, 4096, 2, 16) strides(256, 128, 1048576) box(128, 16, 1, 1) b128");
}

TEST(KernelTiles, RowsOfMlaDecode) {  // sm90/mla_decode/launch.cpp, bf16
  const PageMatrix bytes = page_matrix_of(pages(1152, 1, 61), DType::u8, 1152);
  EXPECT_EQ(describe(make_folded_tile(bytes, {.box_rows = 16,
                                              .fold_chunks = 9,
                                              .heads = HeadAxis::absent,
                                              .l2_promotion = L2Promotion::b128})),
            "u8 dims(128, 64, 9, 1000) strides(1152, 128, 4497408) box(128, 16, 9, 1) b128 "
            "l2_b128");
  EXPECT_EQ(describe(make_folded_tile(bytes, {.box_rows = 64,
                                              .fold_chunks = 2,
                                              .heads = HeadAxis::absent,
                                              .l2_promotion = L2Promotion::b128})),
            "u8 dims(128, 64, 9, 1000) strides(1152, 128, 4497408) box(128, 64, 2, 1) b128 "
            "l2_b128");
}

TEST(KernelTiles, LatentsAndRopeOfFp8MlaDecode) {  // rows of 576 bytes: four and a half granules
  const PageMatrix bytes = page_matrix_of(pages(576, 1, 61), DType::u8, 576);
  EXPECT_EQ(describe(make_folded_tile(columns_as(bytes, DType::u8, 0, 512),
                                      {.box_rows = 16,
                                       .fold_chunks = 4,
                                       .heads = HeadAxis::absent,
                                       .l2_promotion = L2Promotion::b128})),
            "u8 dims(128, 64, 4, 1000) strides(576, 128, 2248704) box(128, 16, 4, 1) b128 "
            "l2_b128");
  EXPECT_EQ(describe(make_folded_tile(bytes, {.swizzle = Swizzle::b64,
                                              .box_rows = 16,
                                              .fold_chunks = 1,
                                              .heads = HeadAxis::absent,
                                              .l2_promotion = L2Promotion::b128})),
            "u8 dims(64, 64, 9, 1000) strides(576, 64, 2248704) box(64, 16, 1, 1) b64 l2_b128");
}

TEST(KernelTiles, WholeRowsOfFp8MlaDecode) {  // a box wider than the row spaces rows out
  const PageMatrix bytes = page_matrix_of(pages(576, 1, 61), DType::u8, 576);
  EXPECT_EQ(describe(make_tile(columns_as(bytes, DType::i64, 0, 72),
                               {.swizzle = Swizzle::none,
                                .box_columns = 82,
                                .box_rows = 16,
                                .heads = HeadAxis::absent,
                                .l2_promotion = L2Promotion::b128})),
            "i64 dims(72, 64, 1000) strides(576, 2248704) box(82, 16, 1) l2_b128");
}

TEST(KernelTiles, QueriesOfSparseMla) {  // sm90/sparse_mla
  EXPECT_EQ(
      describe(make_tile(
          rows(DType::bf16, {256, 128, 576}),
          {.box_columns = 64, .box_rows = 1, .box_heads = 64, .l2_promotion = L2Promotion::b256})),
      "bf16 dims(576, 128, 256) strides(1152, 147456) box(64, 64, 1) b128 l2_b256");
}

TEST(KernelTiles, QueriesOfTheIndexer) {  // sm90/mla_indexer
  EXPECT_EQ(describe(make_grouped_tile(rows(DType::fp8_e4m3, {32, 64, 128}),
                                       {.box_columns = 128,
                                        .box_rows = 2,
                                        .group_heads = 4,
                                        .box_groups = 16,
                                        .l2_promotion = L2Promotion::b256})),
            "fp8_e4m3 dims(128, 4, 32, 16) strides(128, 8192, 512) box(128, 4, 2, 16) b128 "
            "l2_b256");
  EXPECT_EQ(describe(make_grouped_tile(rows(DType::fp8_e4m3, {32, 8, 64}),
                                       {.swizzle = Swizzle::none,
                                        .box_columns = 64,
                                        .box_rows = 1,
                                        .group_heads = 4,
                                        .box_groups = 2,
                                        .l2_promotion = L2Promotion::b256})),
            "fp8_e4m3 dims(64, 4, 32, 2) strides(64, 512, 256) box(64, 4, 1, 2) l2_b256");
}

TEST(KernelTiles, KeysAndScalesOfTheIndexer) {
  KvLayerView view = pages(128, 1, 61);
  EXPECT_EQ(describe(make_tile(page_matrix_of(view, DType::fp8_e4m3, 128),
                               {.box_columns = 128,
                                .box_rows = 64,
                                .heads = HeadAxis::absent,
                                .l2_promotion = L2Promotion::b256})),
            "fp8_e4m3 dims(128, 64, 1000) strides(128, 499712) box(128, 64, 1) b128 l2_b256");
  view.scales = {.num_pages = 900, .page_stride = 61 * 64, .token_stride = 1, .num_slots = 1};
  EXPECT_EQ(describe(make_scale_tile(page_scale_matrix_of(view), 64)),
            "f32 dims(64, 900) strides(15616) box(64, 1)");
}

}  // namespace
}  // namespace quire
