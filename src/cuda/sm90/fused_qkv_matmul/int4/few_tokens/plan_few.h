// SPDX-License-Identifier: Apache-2.0
// How up to 16 tokens are shared out among multiprocessors and warps: pure functions of sizes.
#pragma once

#include <string_view>

#include "cuda/sm90/fused_qkv_matmul/int4/config.h"
#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/config.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

// The compiled kernels as the planner sees them. For host code only.

struct FewTokensVariant {
  std::string_view name;
  FewTokensConfig config;
  void (*launch)(const FewTokensParams& params, const FewTokensLaunch& launch);
};

template <typename Variant> constexpr FewTokensVariant few_tokens_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_few_tokens<Variant>};
}

inline constexpr FewTokensVariant kFewTokensVariants[] = {
    few_tokens_variant<FewTokens<DType::bf16, 8>>("int4_bf16_quarters_t8"),
    few_tokens_variant<FewTokens<DType::bf16, 16>>("int4_bf16_quarters_t16"),
    few_tokens_variant<FewTokens<DType::f16, 8>>("int4_f16_quarters_t8"),
    few_tokens_variant<FewTokens<DType::f16, 16>>("int4_f16_quarters_t16"),
};

struct FewTokensPlan {
  const FewTokensVariant* variant = nullptr;  // null: another kernel's problem
  int quarters = 0;                           // of all
  int blocks = 0;
  int parts = 0;  // warps that share a quarter
  int warps = 0;  // that multiply, in the block with the most quarters
  int stages = 0;
  int stage_bytes = 0;
};

FewTokensPlan plan_few_tokens(const Int4Shape& shape, int num_sms);

}  // namespace quire::cuda::sm90::fused_qkv_matmul
