// SPDX-License-Identifier: Apache-2.0
// The compiled prefill kernels as the planner sees them. For host code only: a kernel's own file would
// compile all of them.
#pragma once

#include <string_view>

#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"

namespace quire::cuda::sm90::flash_attention {

struct PrefillVariant {
  std::string_view name;
  PrefillConfig config;
  // One of the three.
  void (*launch)(const PrefillParams& params, const PagedKeys& keys, const PrefillLaunch& launch);
  void (*launch_fp8)(const PrefillParams& params, const TransposedKeys& keys,
                     const PrefillLaunch& launch);
  void (*launch_dequantizing)(const PrefillParams& params, const DequantizedKeys& keys,
                              const PrefillLaunch& launch);

  // V comes as it is and is transposed in shared memory.
  constexpr bool transposes() const { return config.has_fp8_products() && launch != nullptr; }
};

template <typename Variant> constexpr PrefillVariant prefill_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_prefill<Variant>, nullptr, nullptr};
}
template <typename Variant> constexpr PrefillVariant fp8_variant(std::string_view name) {
  return {name, Variant::kConfig, nullptr, launch_fp8<Variant>, nullptr};
}

template <typename Variant> constexpr PrefillVariant transposing_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_transposing<Variant>, nullptr, nullptr};
}
template <typename Variant> constexpr PrefillVariant dequantizing_variant(std::string_view name) {
  return {name, Variant::kConfig, nullptr, nullptr, launch_dequantizing<Variant>};
}

// Scores::modified takes every problem; Scores::scaled is there too where speed was asked for.
inline constexpr PrefillVariant kPrefillVariants[] = {
    prefill_variant<PrefillD64<DType::bf16, Scores::scaled>>("bf16_d64"),
    prefill_variant<PrefillD64<DType::bf16, Scores::modified>>("bf16_d64_modified"),
    prefill_variant<PrefillD80<DType::bf16, Scores::modified>>("bf16_d80_modified"),
    prefill_variant<PrefillD96<DType::bf16, Scores::scaled>>("bf16_d96"),
    prefill_variant<PrefillD96<DType::bf16, Scores::modified>>("bf16_d96_modified"),
    prefill_variant<PrefillD112<DType::bf16, Scores::modified>>("bf16_d112_modified"),
    prefill_variant<PrefillD128<DType::bf16, Scores::scaled>>("bf16_d128"),
    prefill_variant<PrefillD128<DType::bf16, Scores::modified>>("bf16_d128_modified"),
    prefill_variant<PrefillD192V128<DType::bf16, Scores::scaled>>("bf16_d192_v128"),
    prefill_variant<PrefillD192V128<DType::bf16, Scores::modified>>("bf16_d192_v128_modified"),
    prefill_variant<PrefillD192<DType::bf16, Scores::modified>>("bf16_d192_modified"),
    prefill_variant<PrefillD256<DType::bf16, Scores::scaled>>("bf16_d256"),
    prefill_variant<PrefillD256<DType::bf16, Scores::modified>>("bf16_d256_modified"),
    prefill_variant<PrefillD64<DType::f16, Scores::modified>>("f16_d64_modified"),
    prefill_variant<PrefillD80<DType::f16, Scores::modified>>("f16_d80_modified"),
    prefill_variant<PrefillD96<DType::f16, Scores::modified>>("f16_d96_modified"),
    prefill_variant<PrefillD112<DType::f16, Scores::modified>>("f16_d112_modified"),
    prefill_variant<PrefillD128<DType::f16, Scores::scaled>>("f16_d128"),
    prefill_variant<PrefillD128<DType::f16, Scores::modified>>("f16_d128_modified"),
    prefill_variant<PrefillD192V128<DType::f16, Scores::modified>>("f16_d192_v128_modified"),
    prefill_variant<PrefillD192<DType::f16, Scores::modified>>("f16_d192_modified"),
    prefill_variant<PrefillD256<DType::f16, Scores::modified>>("f16_d256_modified"),
    prefill_variant<PrefillD64E4m3<DType::bf16, Scores::modified>>("bf16_e4m3_d64_modified"),
    prefill_variant<PrefillD128E4m3<DType::bf16, Scores::scaled>>("bf16_e4m3_d128"),
    prefill_variant<PrefillD128E4m3<DType::bf16, Scores::modified>>("bf16_e4m3_d128_modified"),
    dequantizing_variant<PrefillD128Dequantizing<DType::bf16, Scores::scaled>>(
        "bf16_d128_expanding"),
    fp8_variant<Fp8D128<DType::bf16, Scores::scaled>>("narrow_bf16_d128"),
    fp8_variant<Fp8D192V128<DType::bf16, Scores::scaled>>("narrow_bf16_d192_v128"),
    transposing_variant<Fp8D192V128<DType::bf16, Scores::scaled>>("flipping_bf16_d192_v128"),
};

}  // namespace quire::cuda::sm90::flash_attention
