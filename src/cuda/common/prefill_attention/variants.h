// SPDX-License-Identifier: Apache-2.0
// Every compiled prefill kernel: the files in variants/ by width (bf16 and f16 together), a row of
// sm90/flash_attention/prefill/variant_table.h for the planner.
#pragma once

#include "cuda/common/prefill_attention/config.h"

namespace quire::cuda {

template <DType kDType, Scores kScores> struct PrefillD64 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = kDType,
                                         .head_dim = 64,
                                         .value_dim = 64,
                                         .key_stages = 3,
                                         .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD80 {
  static constexpr PrefillConfig kConfig{
      .dtype = kDType, .cache_dtype = kDType, .head_dim = 80, .value_dim = 80, .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD96 {
  static constexpr PrefillConfig kConfig{
      .dtype = kDType, .cache_dtype = kDType, .head_dim = 96, .value_dim = 96, .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD112 {
  static constexpr PrefillConfig kConfig{
      .dtype = kDType, .cache_dtype = kDType, .head_dim = 112, .value_dim = 112, .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD128 {
  static constexpr PrefillConfig kConfig{.dtype = kDType, .cache_dtype = kDType, .scores = kScores};
};
// Over a cache of e4m3.
template <DType kDType, Scores kScores> struct PrefillD64E4m3 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = DType::fp8_e4m3,
                                         .head_dim = 64,
                                         .value_dim = 64,
                                         .key_stages = 3,
                                         .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD128E4m3 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = DType::fp8_e4m3,
                                         .key_stages = 3,
                                         .scores = kScores,
                                         .products = Products::mixed};
};
// Over a cache of e4m3 that becomes q's dtype in the workspace.
template <DType kDType, Scores kScores> struct PrefillD128Dequantizing {
  static constexpr PrefillConfig kConfig{
      .dtype = kDType, .cache_dtype = kDType, .loading_warps = 2, .scores = kScores};
};
// Over a cache of e4m3, products of e4m3 too.
template <DType kDType, Scores kScores> struct Fp8D128 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = DType::fp8_e4m3,
                                         .key_stages = 4,
                                         .value_stages = 4,
                                         .scores = kScores,
                                         .products = Products::fp8};
};
// The rope part of a key fills half of its second swizzle column.
template <DType kDType, Scores kScores> struct Fp8D192V128 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = DType::fp8_e4m3,
                                         .head_dim = 192,
                                         .key_stages = 3,
                                         .q_buffers = 1,
                                         .q_parts = 2,
                                         .scores = kScores,
                                         .products = Products::fp8};
};
// The heads of latent attention, projected.
template <DType kDType, Scores kScores> struct PrefillD192V128 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = kDType,
                                         .head_dim = 192,
                                         .value_stages = 2,
                                         .q_buffers = 1,
                                         .q_parts = 2,
                                         .scores = kScores,
                                         .order = StepOrder::sum_first};
};
template <DType kDType, Scores kScores> struct PrefillD192 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = kDType,
                                         .head_dim = 192,
                                         .value_dim = 192,
                                         .block_keys = 112,
                                         .value_stages = 2,
                                         .q_buffers = 1,
                                         .scores = kScores};
};
template <DType kDType, Scores kScores> struct PrefillD256 {
  static constexpr PrefillConfig kConfig{.dtype = kDType,
                                         .cache_dtype = kDType,
                                         .head_dim = 256,
                                         .value_dim = 256,
                                         .block_keys = 64,
                                         .q_buffers = 1,
                                         .scores = kScores};
};

}  // namespace quire::cuda
