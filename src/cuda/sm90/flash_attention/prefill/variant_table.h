// SPDX-License-Identifier: Apache-2.0
// The compiled prefill kernels as the planner sees them. For host code only: a kernel's own file would
// compile all of them.
#pragma once

#include <string_view>

#include "cuda/common/prefill_attention/variants.h"
#include "cuda/sm90/flash_attention/prefill/expanded/launch_expanding.h"
#include "cuda/sm90/flash_attention/prefill/launch_prefill.h"
#include "cuda/sm90/flash_attention/prefill/narrow/launch_flipping.h"
#include "cuda/sm90/flash_attention/prefill/narrow/launch_narrow.h"

namespace quire::cuda::sm90::flash_attention {

struct PrefillVariant {
  std::string_view name;
  PrefillConfig config;
  // One of the three.
  void (*launch)(const PrefillParams& params, const PagedKeys& keys, const PrefillLaunch& launch);
  void (*launch_narrow)(const PrefillParams& params, const FlippedKeys& keys,
                        const PrefillLaunch& launch);
  void (*launch_expanding)(const PrefillParams& params, const ExpandedKeys& keys,
                           const PrefillLaunch& launch);

  // V comes as it is and is transposed in shared memory.
  constexpr bool flips() const { return config.is_narrow() && launch != nullptr; }
};

template <typename Variant> constexpr PrefillVariant prefill_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_prefill<Variant>, nullptr, nullptr};
}
template <typename Variant> constexpr PrefillVariant narrow_variant(std::string_view name) {
  return {name, Variant::kConfig, nullptr, launch_narrow<Variant>, nullptr};
}

template <typename Variant> constexpr PrefillVariant flipping_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_flipping<Variant>, nullptr, nullptr};
}
template <typename Variant> constexpr PrefillVariant expanding_variant(std::string_view name) {
  return {name, Variant::kConfig, nullptr, nullptr, launch_expanding<Variant>};
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
    expanding_variant<PrefillD128Expanding<DType::bf16, Scores::scaled>>("bf16_d128_expanding"),
    narrow_variant<NarrowD128<DType::bf16, Scores::scaled>>("narrow_bf16_d128"),
    narrow_variant<NarrowD192V128<DType::bf16, Scores::scaled>>("narrow_bf16_d192_v128"),
    flipping_variant<NarrowD192V128<DType::bf16, Scores::scaled>>("flipping_bf16_d192_v128"),
};

}  // namespace quire::cuda::sm90::flash_attention
