// SPDX-License-Identifier: Apache-2.0
// The two weights of the absorbed form inside kv_b_proj, as views.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/tensor_view.h"

namespace quire {

struct SplitKvBProj {
  TensorView w_uk;  // [heads, latent, nope]
  TensorView w_uv;  // [heads, value, latent]
  std::optional<TensorView> w_uk_scale{};
  std::optional<TensorView> w_uv_scale{};
};

// kv_b_proj [heads · (nope + value), latent]. Its scales, of blocks of 128 × 128, are split where no
// block holds rows of two bands: nope and value are multiples of 128.
SplitKvBProj split_kv_b_proj(const TensorView& kv_b_proj, std::int64_t heads, std::int64_t nope,
                             const std::optional<TensorView>& scale);

}  // namespace quire
