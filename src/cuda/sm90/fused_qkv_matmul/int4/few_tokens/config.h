// SPDX-License-Identifier: Apache-2.0
// The int4 kernels for up to 16 tokens, as values.
#pragma once

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

}  // namespace quire::cuda::sm90::fused_qkv_matmul
