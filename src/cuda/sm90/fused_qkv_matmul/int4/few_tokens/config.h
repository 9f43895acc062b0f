// SPDX-License-Identifier: Apache-2.0
// The int4 kernels for up to 16 tokens, as values.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/sm90/fused_qkv_matmul/int4/config.h"
#include "quire/dtype.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

inline constexpr int kQuarterRows = 16;       // of a panel: what a warp multiplies
inline constexpr int kMostQuarterWarps = 18;  // of a block: more would have too few registers
inline constexpr int kOtherWarps = 2;         // one brings x, one looks up where tokens go
inline constexpr int kMostXStages = 8;

struct FewTokensConfig {
  DType dtype = DType::bf16;  // of x
  int tokens = 8;             // at most; a multiple of 8
};

// Steps of a warp that are on their way at a time: as registers allow.
constexpr int steps_ahead(int groups, int tokens) {
  if (tokens > 8) return groups == 4 ? 1 : 2;
  return groups == 1 ? 4 : groups == 2 ? 3 : 2;
}

template <DType kDType, int kTokens> struct FewTokens {
  static constexpr FewTokensConfig kConfig{.dtype = kDType, .tokens = kTokens};
};

struct FewTokensParams {
  Int4Params product{};  // x: boxes of all tokens × 2 · parts units of 64 columns
  int quarters = 0;      // of all panels that have columns of Y; a block has some in a row
  // Warps that share a quarter: warp p of them has steps p, p + parts, …
  int parts = 0;
  int stages = 0;  // of x, `parts` steps each
  int stage_bytes = 0;
};

// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.

struct FewTokensLaunch {
  int blocks = 0;
  int warps = 0;  // that multiply
  cudaStream_t stream = nullptr;
};

template <typename Variant>
void launch_few_tokens(const FewTokensParams& params, const FewTokensLaunch& launch);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
