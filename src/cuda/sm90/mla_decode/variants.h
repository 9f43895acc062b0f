// SPDX-License-Identifier: Apache-2.0
// Every compiled attention kernel of mla_decode: one row of variant_table.h for each, for the planner.
#pragma once

#include "cuda/sm90/mla_decode/swap_ab/config.h"

namespace quire::cuda::sm90::mla_decode {

// bf16 rows and many rows of q: one kernel (pingpong/), of one block or of two or four that share their keys.
struct MlaDecodeBf16R64 {
  static constexpr int kRows = 64;
  static constexpr int kCluster = 1;
  static constexpr DType kLatents = DType::bf16;
};
struct MlaDecodeBf16R128 {
  static constexpr int kRows = 128;
  static constexpr int kCluster = 2;
  static constexpr DType kLatents = DType::bf16;
};
struct MlaDecodeBf16R256 {
  static constexpr int kRows = 256;
  static constexpr int kCluster = 4;
  static constexpr DType kLatents = DType::bf16;
};
// Rows that come in units, for blocks that share them.
template <SwapAbConfig kShape, int kBlocks = 1> struct MlaDecodeUnits {
  static constexpr SwapAbConfig kConfig = kShape;
  static constexpr int kRows = kBlocks * kConfig.rows;
  static constexpr bool kLeavesNotes = true;
  static constexpr int kCluster = kBlocks;
  static constexpr DType kLatents = kConfig.latents();
};
// Few rows of q: operands swapped (swap_ab/).
struct MlaDecodeBf16R16 : MlaDecodeUnits<SwapAbConfig{.kind = SwapAbKind::bf16, .units = 11}> {};
struct MlaDecodeFp8R16 : MlaDecodeUnits<SwapAbConfig{.kind = SwapAbKind::fp8, .units = 20}> {};
struct MlaDecodeFp8BlockR16
    : MlaDecodeUnits<SwapAbConfig{.kind = SwapAbKind::fp8_block, .units = 18}> {};
// Rows of e4m3 and many rows of q (fp8_wgmma/): one block, or two that share their keys.
inline constexpr SwapAbConfig kFp8Wgmma{.kind = SwapAbKind::fp8_spaced,
                                        .rows = 64,
                                        .units = 7,
                                        .load_registers = 48,
                                        .score_registers = 128,
                                        .value_registers = 168};
struct MlaDecodeFp8R64 : MlaDecodeUnits<kFp8Wgmma> {};
struct MlaDecodeFp8R128 : MlaDecodeUnits<kFp8Wgmma, 2> {};

}  // namespace quire::cuda::sm90::mla_decode
