// SPDX-License-Identifier: Apache-2.0
// The compiled kernels as the planner sees them. For host code only: a kernel's own file would compile
// all of them.
#pragma once

#include <string_view>

#include "cuda/sm90/flash_attention/decode/params.h"
#include "cuda/sm90/flash_attention/decode/variants.h"

namespace quire::cuda::sm90::flash_attention {

struct DecodeVariant {
  std::string_view name;
  DecodeConfig config;
  void (*launch)(const DecodeParams& params, cudaStream_t stream);
};

template <typename Variant> constexpr DecodeVariant decode_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_decode<Variant>};
}

// Of a dtype, few rows first.
inline constexpr DecodeVariant kDecodeVariants[] = {
    decode_variant<DecodeD128<DType::bf16, 8>>("bf16_d128_r8"),
    decode_variant<DecodeD128<DType::bf16, 16>>("bf16_d128_r16"),
    decode_variant<DecodeD128<DType::bf16, 32>>("bf16_d128_r32"),
    decode_variant<DecodeD128<DType::f16, 8>>("f16_d128_r8"),
    decode_variant<DecodeD128<DType::f16, 16>>("f16_d128_r16"),
    decode_variant<DecodeD128<DType::f16, 32>>("f16_d128_r32"),
    decode_variant<DecodeD128<DType::fp8_e4m3, 8>>("fp8_d128_r8"),
    decode_variant<DecodeD128<DType::fp8_e4m3, 16>>("fp8_d128_r16"),
    decode_variant<DecodeD128<DType::fp8_e4m3, 32>>("fp8_d128_r32"),
};

}  // namespace quire::cuda::sm90::flash_attention
