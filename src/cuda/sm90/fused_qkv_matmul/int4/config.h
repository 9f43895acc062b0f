// SPDX-License-Identifier: Apache-2.0
// A compiled int4 kernel of fused_qkv_matmul on Hopper, as a value.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/matmul/int4/pack_order.h"
#include "cuda/common/matmul/params.h"
#include "quire/dtype.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

// A block computes 64 · row_groups columns of Y for `tokens` tokens. Its warpgroups take a panel of 64
// weight rows each, and every k_groups-th step of K.
struct Int4Config {
  DType dtype = DType::bf16;  // of x
  int tokens = 16;            // N of the products
  int row_groups = 1;
  int k_groups = 4;
  int chunk_steps = 4;  // steps that one copy brings; divides k_groups
  int stages = 5;       // chunks; whole rounds of the warpgroups
  int blocks_per_sm = 1;

  // Many tokens need more registers than an even share.
  static constexpr int kLoadRegisters = 24;
  static constexpr int kMultiplyRegisters = 112;
  constexpr bool moves_registers() const { return tokens >= 64; }

  constexpr int warpgroups() const { return row_groups * k_groups; }
  constexpr int threads() const { return 128 * (warpgroups() + 1); }
  // Warps that read a chunk: a warpgroup reads one step of it, or none.
  constexpr int readers() const { return 4 * row_groups * chunk_steps; }
  // Of x in a chunk, and of a chunk of x, codes and sides.
  constexpr int unit_bytes() const { return tokens * 128; }
  constexpr int x_bytes() const { return 2 * chunk_steps * unit_bytes(); }
  constexpr int stage_bytes() const {
    const int panel = chunk_steps * (kStepCodeBytes + kMaxSideBytes);
    return (x_bytes() + row_groups * panel + 1023) / 1024 * 1024;
  }
};

// Every compiled int4 kernel: a file in variants/ for each tile, one row of variant_table.h for the
// planner. Columns × tokens of a block.

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

// What the choice of an int4 kernel depends on.

struct Int4Shape {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;  // of Y
  DType dtype = DType::bf16;
  int steps = 1;  // of 128 columns of x
  bool batch_invariant = false;
};

struct Int4Params {
  TensorMap x{};                      // [blocks of 64 columns][tokens][64]: boxes of a chunk
  const std::byte* weight = nullptr;  // in Int4Order
  Int4Order order{};
  QkvOutputs outputs{};
  bool overlaps_previous = false;  // as in Context
};

// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.

struct Int4Grid {
  int columns = 0;  // blocks along the columns of Y
  int tokens = 0;   // and along the tokens
};

template <typename Variant>
void launch_int4(const Int4Params& params, const Int4Grid& grid, cudaStream_t stream);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
