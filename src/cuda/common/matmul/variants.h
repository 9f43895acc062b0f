// SPDX-License-Identifier: Apache-2.0
// Every compiled kernel of fused_qkv_matmul on Hopper: a file in variants/ for each tile, one row of
// sm90/fused_qkv_matmul/variant_table.h for the planner. Stages: as many as fit, or fewer where more bytes on their way did not pay.
#pragma once

#include "cuda/common/matmul/config.h"

namespace quire::cuda {

// Promoted row scales have no such tile: sums and products of 256 columns are more registers than there are.
template <DType kDType, Scaling kScaling = Scaling::none> struct TileN256 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 256,
                                      .stages = 4,
                                      .tail_n = kDType == DType::f32 ? 0 : 192};
};
// Row scales again, all of K in the tensor core's own sums: they need no others beside them.
struct TileN256FastAccum {
  static constexpr TileConfig kConfig{.dtype = DType::fp8_e4m3,
                                      .scaling = Scaling::rows,
                                      .tile_n = 256,
                                      .stages = 4,
                                      .chained_blocks = 0,
                                      .tail_n = 192};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct TileN192 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 192,
                                      .stages = 5,
                                      .tail_n = kScaling == Scaling::rows ? 96 : 0};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct TileN160 {
  static constexpr TileConfig kConfig{
      .dtype = kDType, .scaling = kScaling, .tile_n = 160, .stages = 6};
};
// For 129 to 256 tokens: the weights of both tiles of a cluster are read once.
template <DType kDType, Scaling kScaling = Scaling::none> struct TileN96 {
  static constexpr TileConfig kConfig{
      .dtype = kDType, .scaling = kScaling, .tile_n = 96, .stages = 7};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct TileN96T128 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 96,
                                      .stages = kDType == DType::f32 ? 6 : 7,
                                      .shared = Shared::tokens,
                                      .blocks_sent = bits(kDType) == 16 ? 2 : 1};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct TileN64T128 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 64,
                                      .stages = 9,
                                      .cluster = 4,
                                      .shared = Shared::tokens};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct TileN96T64 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 96,
                                      .consumers = 1,
                                      .stages = kScaling == Scaling::none ? 7 : 11,
                                      .cluster = 1,
                                      .kept_tokens = 64};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct TileN64T64 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 64,
                                      .consumers = 1,
                                      .stages = 13,
                                      .cluster = 1,
                                      .kept_tokens = 64};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct TileN64T16 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 64,
                                      .consumers = 1,
                                      .stages = kScaling == Scaling::blocks ? 10 : 11,
                                      .cluster = 1,
                                      .kept_tokens = 16,
                                      .blocks_per_sm = 2};
};

// K and V rows of codes with scales: tiles that two by two hold whole granules of 128 columns.
// (Block scales have no registers for 256.)
template <DType kDType> struct CodesN256 {
  static constexpr TileConfig kConfig{
      .dtype = kDType, .tile_n = 256, .stages = 4, .kv_rows = KvRows::codes};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct CodesN192 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 192,
                                      .stages = 5,
                                      .shared = Shared::tokens,
                                      .kv_rows = KvRows::codes};
};
// For 129 to 256 tokens, as TileN96.
template <DType kDType, Scaling kScaling = Scaling::none> struct CodesN128 {
  static constexpr TileConfig kConfig{
      .dtype = kDType, .scaling = kScaling, .tile_n = 128, .stages = 6, .kv_rows = KvRows::codes};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct CodesN128T128 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 128,
                                      .stages = 6,
                                      .shared = Shared::tokens,
                                      .kv_rows = KvRows::codes};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct CodesN64T128 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 64,
                                      .stages = 9,
                                      .cluster = 4,
                                      .shared = Shared::tokens,
                                      .kv_rows = KvRows::codes};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct CodesN128T64 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 128,
                                      .consumers = 1,
                                      .stages = 7,
                                      .cluster = 1,
                                      .kept_tokens = 64,
                                      .kv_rows = KvRows::codes};
};
template <DType kDType, Scaling kScaling = Scaling::none> struct CodesN64T64 {
  static constexpr TileConfig kConfig{.dtype = kDType,
                                      .scaling = kScaling,
                                      .tile_n = 64,
                                      .consumers = 1,
                                      .stages = 13,
                                      .cluster = 2,
                                      .shared = Shared::tokens,
                                      .kept_tokens = 64,
                                      .kv_rows = KvRows::codes};
};

constexpr TileConfig without_tail(TileConfig config) {
  config.tail_n = 0;
  return config;
}

// A variant without its narrow tiles, for launches that need none: code for two widths made 2048 tokens of fp8 1 %
// slower.
template <typename Variant> struct WholeTilesOnly {
  static constexpr TileConfig kConfig = without_tail(Variant::kConfig);
};

}  // namespace quire::cuda
