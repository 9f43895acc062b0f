// SPDX-License-Identifier: Apache-2.0
// How a dot product becomes a score: scale, softcap, ALiBi, sinks, and the scales of an e4m3 cache.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "quire/host_device.h"

// Kernels include this file: what ops and caches are does not concern them.
namespace quire {
struct FlashAttentionArgs;
struct KvLayerView;
struct TensorView;
}  // namespace quire

namespace quire::cuda {

// How a dot product becomes a score: softcap(scale · raw) + slope(head) · (key - query).

struct ScoreParams {
  float scale = 1.0f;
  float softcap = 0.0f;                 // 0: none
  const float* alibi_slopes = nullptr;  // [heads], null: none
};

// Tile kernels compute exp2(raw · scale - max · scale) with one rounding of the product that is taken off, and its error
// grows with the score. With ordinary data only an extraordinary scale leads there.
inline constexpr double kLargestTileScale = 65536.0;

// Empty, or why tile kernels do not take the scale.
inline std::string refuse_scale(double scale) {
  return std::abs(scale) <= kLargestTileScale ? "" : "scale is beyond 65536";
}

// What a call does to scores beyond the product, as its kernels receive it.

struct ScoreRules {
  float scale = 1.0F;
  float softcap = 0.0F;                 // 0: none
  const float* alibi_slopes = nullptr;  // [heads], or null
  std::int64_t alibi_stride = 0;
  const float* sinks = nullptr;  // [heads], or null
  std::int64_t sinks_stride = 0;
};

// Of the heads from `first_head` on.
ScoreRules score_rules(double scale, double softcap, const std::optional<TensorView>& alibi_slopes,
                       const std::optional<TensorView>& sinks, std::int64_t first_head);
ScoreRules score_rules(const FlashAttentionArgs& args);

// Of a cache of e4m3: one for all rows of a KV head, positive; null: 1.
struct HeadScales {
  const float* keys = nullptr;
  const float* values = nullptr;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;

  QUIRE_HOST_DEVICE float of_keys(int head) const {
    return keys == nullptr ? 1.0F : keys[head * key_stride];
  }
  QUIRE_HOST_DEVICE float of_values(int head) const {
    return values == nullptr ? 1.0F : values[head * value_stride];
  }
};

HeadScales head_scales(const KvLayerView& keys, const KvLayerView& values);

}  // namespace quire::cuda
