// SPDX-License-Identifier: Apache-2.0
// The compiled kernels as the planner sees them. For host code only.
#pragma once

#include <string_view>

#include "cuda/sm90/fused_qkv_matmul/int4/few_tokens/launch_few.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

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

}  // namespace quire::cuda::sm90::fused_qkv_matmul
