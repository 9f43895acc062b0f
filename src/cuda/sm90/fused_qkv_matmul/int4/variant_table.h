// SPDX-License-Identifier: Apache-2.0
// The compiled int4 kernels as the planner sees them. For host code only.
#pragma once

#include <string_view>

#include "cuda/sm90/fused_qkv_matmul/int4/config.h"

namespace quire::cuda::sm90::fused_qkv_matmul {

struct Int4Variant {
  std::string_view name;
  Int4Config config;
  // Time of a step beside the others' (K = 4096 and 8192, 64 to 2048 tokens).
  double relative_cost;
  void (*launch)(const Int4Params& params, const Int4Grid& grid, cudaStream_t stream);
};

template <typename Variant>
constexpr Int4Variant int4_variant(std::string_view name, double relative_cost) {
  return {name, Variant::kConfig, relative_cost, launch_int4<Variant>};
}

inline constexpr Int4Variant kInt4Variants[] = {
    int4_variant<Int4N64T16<DType::bf16>>("int4_bf16_n64_t16", 0.75),
    int4_variant<Int4N64T32<DType::bf16>>("int4_bf16_n64_t32", 0.85),
    int4_variant<Int4N64T64<DType::bf16>>("int4_bf16_n64_t64", 1.1),
    int4_variant<Int4N128T64<DType::bf16>>("int4_bf16_n128_t64", 1.05),
    int4_variant<Int4N256T64<DType::bf16>>("int4_bf16_n256_t64", 1.0),
    int4_variant<Int4N64T16<DType::f16>>("int4_f16_n64_t16", 0.75),
    int4_variant<Int4N64T32<DType::f16>>("int4_f16_n64_t32", 0.85),
    int4_variant<Int4N64T64<DType::f16>>("int4_f16_n64_t64", 1.1),
    int4_variant<Int4N128T64<DType::f16>>("int4_f16_n128_t64", 1.05),
    int4_variant<Int4N256T64<DType::f16>>("int4_f16_n256_t64", 1.0),
};

}  // namespace quire::cuda::sm90::fused_qkv_matmul
