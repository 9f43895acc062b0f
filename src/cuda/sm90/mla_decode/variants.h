// SPDX-License-Identifier: Apache-2.0
// Every compiled attention kernel of mla_decode: one row of plan_decode.h for each, for the planner.
#pragma once

#include "cuda/sm90/mla_decode/params.h"

namespace quire::cuda::sm90::mla_decode {

// A compiled kernel for few query rows, as a value.

// What a kernel knows of its rows when it is compiled.
enum class SwapAbKind {
  bf16,       // 1 152 bytes
  fp8,        // e4m3, 576 or 640 bytes: at most one scale for a row, in a tensor of its own
  fp8_block,  // e4m3, 656 bytes: a scale for 128 columns, in the row
};

struct SwapAbConfig {
  SwapAbKind kind = SwapAbKind::bf16;
  int rows = 16;   // of q
  int units = 11;  // of 16 keys, on their way or in use
  // Of a thread of each role; together the 480 that five warpgroups begin with.
  int load_registers = 48;
  int score_registers = 120;
  int value_registers = 96;

  static constexpr int kKeys = 64;      // of a tile
  static constexpr int kUnitKeys = 16;  // a warp's of the scores
  static constexpr int kTileUnits = kKeys / kUnitKeys;
  static constexpr int kBlocks = LatentConfig::kLatent / 64;  // of columns: an instruction's
  static constexpr int kScaleGroups = 4;                      // of latent columns, at most
  static constexpr int kGroups = 2;                           // of each kind
  static constexpr int kGroupWarps = 4;
  static constexpr int kWarps = kGroups * kGroupWarps;  // of each kind
  static constexpr int kThreads = 128 * (2 * kGroups + 1);
  static constexpr int kWorkTiles = 3;  // described ahead
  // Bytes from a row of e4m3 to the next, where they are not in swizzle columns.
  static constexpr int kFp8Pitch = 656;

  constexpr bool is_fp8() const { return kind != SwapAbKind::bf16; }
  constexpr DType latents() const { return is_fp8() ? DType::fp8_e4m3 : DType::bf16; }
  // Of latent columns whose keys have scales of their own, and weights times these.
  constexpr int scale_groups() const { return kind == SwapAbKind::fp8_block ? kScaleGroups : 1; }

  // What 16 rows take in shared memory (shared.cuh).
  constexpr int unit_bytes() const {
    constexpr int kBytes[] = {1152, 640, kFp8Pitch};
    return kUnitKeys * kBytes[static_cast<int>(kind)];
  }
};

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
  static constexpr bool kPublishesSplits = true;
  static constexpr int kCluster = kBlocks;
  static constexpr DType kLatents = kConfig.latents();
};
// Few rows of q: operands swapped (swap_ab/).
struct MlaDecodeBf16R16 : MlaDecodeUnits<SwapAbConfig{.kind = SwapAbKind::bf16, .units = 11}> {};
struct MlaDecodeFp8R16 : MlaDecodeUnits<SwapAbConfig{.kind = SwapAbKind::fp8, .units = 20}> {};
struct MlaDecodeFp8BlockR16
    : MlaDecodeUnits<SwapAbConfig{.kind = SwapAbKind::fp8_block, .units = 18}> {};
// Rows of e4m3 with scales in them and many rows of q (fp8_wgmma/): one block, or two that share their keys.
inline constexpr SwapAbConfig kFp8Wgmma{.kind = SwapAbKind::fp8_block,
                                        .rows = 64,
                                        .units = 7,
                                        .load_registers = 48,
                                        .score_registers = 128,
                                        .value_registers = 168};
struct MlaDecodeFp8BlockR64 : MlaDecodeUnits<kFp8Wgmma> {};
struct MlaDecodeFp8BlockR128 : MlaDecodeUnits<kFp8Wgmma, 2> {};

// Rows of e4m3 multiplied as codes (fp8_pingpong/).

// Where the scales of e4m3 rows stand, and what their rope columns are.
enum class Fp8RowKind {
  uniform,  // 576 bytes: no scales, rope of e4m3
  token,    // 640 bytes: one scale in a tensor of its own, rope of bf16
  block,    // 656 bytes: a scale for 128 columns in the row, rope of bf16
};

struct Fp8PingpongConfig {
  Fp8RowKind kind = Fp8RowKind::uniform;
  int terms = 1;   // numbers of 8 bits that stand for one of q, and for one of P
  int stages = 4;  // tiles of keys, on their way or in use

  // Of 128 columns, with scales of their own.
  constexpr int scale_groups() const { return kind == Fp8RowKind::block ? 4 : 1; }
  constexpr int row_scales() const { return scale_groups(); }
  // Scores are added up in fp32 after every 128 columns, with a power of two of each for q. Otherwise the tensor cores
  // add up whole rows: beside q in e4m3 the 13 bits that they keep are many.
  constexpr bool promotes() const { return terms == 2 || kind == Fp8RowKind::block; }
  constexpr int rope_bytes() const { return kind == Fp8RowKind::uniform ? 64 : 128; }
};

// As many stages as shared memory has room for beside q and P. Two terms and P for each of four scales leave room for
// two, which is too few: rows of that kind go to fp8_wgmma/.
constexpr Fp8PingpongConfig fp8_pingpong(Fp8RowKind kind, int terms) {
  return {.kind = kind, .terms = terms, .stages = terms == 1 && kind != Fp8RowKind::block ? 4 : 3};
}

// q and P as numbers of e4m3: where the caller allows it.
struct MlaDecodeCodes {
  static constexpr int kTerms = 1;
  static constexpr DType kLatents = DType::fp8_e4m3;
};
// As sums of two.
struct MlaDecodeCodePairs {
  static constexpr int kTerms = 2;
  static constexpr DType kLatents = DType::fp8_e4m3;
};
template <typename Codes> struct MlaDecodeR64 : Codes {
  static constexpr int kRows = 64;
  static constexpr int kCluster = 1;
};
template <typename Codes> struct MlaDecodeR128 : Codes {
  static constexpr int kRows = 128;
  static constexpr int kCluster = 2;
};

}  // namespace quire::cuda::sm90::mla_decode
