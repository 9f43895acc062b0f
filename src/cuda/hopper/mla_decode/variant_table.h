// SPDX-License-Identifier: Apache-2.0
// The compiled kernels as the planner sees them. For host code only: a kernel's own file would compile
// all of them.
#pragma once

#include <string_view>

#include "cuda/hopper/mla_decode/launch_attend.h"
#include "cuda/hopper/mla_decode/variants.h"

namespace quire::cuda::hopper {

struct MlaDecodeVariant {
  std::string_view name;
  LatentConfig config;
  void (*launch)(const MlaDecodeParams& params, cudaStream_t stream);
};

template <typename Variant> constexpr MlaDecodeVariant mla_decode_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_mla_attend<Variant>};
}

// Few rows first.
inline constexpr MlaDecodeVariant kMlaDecodeVariants[] = {
    mla_decode_variant<MlaDecodeBf16R64>("bf16_r64"),
    mla_decode_variant<MlaDecodeBf16R128>("bf16_r128"),
};

}  // namespace quire::cuda::hopper
