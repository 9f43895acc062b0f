// SPDX-License-Identifier: Apache-2.0
// Every compiled int4 kernel: a file in variants/ for each tile, one row of variant_table.h for the
// planner. Columns × tokens of a block.
#pragma once

#include "cuda/sm90/fused_qkv_matmul/int4/config.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

template <DType kDType> struct Int4N64T16 {
  static constexpr Int4Config kConfig{.dtype = kDType, .tokens = 16};
};
template <DType kDType> struct Int4N64T32 {
  static constexpr Int4Config kConfig{.dtype = kDType, .tokens = 32, .chunk_steps = 2, .stages = 8};
};
template <DType kDType> struct Int4N64T64 {
  static constexpr Int4Config kConfig{.dtype = kDType, .tokens = 64, .chunk_steps = 1, .stages = 8};
};
template <DType kDType> struct Int4N128T64 {
  static constexpr Int4Config kConfig{
      .dtype = kDType, .tokens = 64, .row_groups = 2, .k_groups = 2, .chunk_steps = 1, .stages = 6};
};
template <DType kDType> struct Int4N256T64 {
  static constexpr Int4Config kConfig{
      .dtype = kDType, .tokens = 64, .row_groups = 4, .k_groups = 1, .chunk_steps = 1, .stages = 5};
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
