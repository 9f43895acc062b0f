// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/softmax/score.h"

#include <cmath>

#include "quire/kv_layer_view.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda {

ScoreRules score_rules(double scale, double softcap, const std::optional<TensorView>& alibi_slopes,
                       const std::optional<TensorView>& sinks, std::int64_t first_head) {
  ScoreRules rules{.scale = static_cast<float>(scale), .softcap = static_cast<float>(softcap)};
  if (alibi_slopes.has_value()) {
    rules.alibi_stride = alibi_slopes->strides[0];
    rules.alibi_slopes = alibi_slopes->as<const float>() + first_head * rules.alibi_stride;
  }
  if (sinks.has_value()) {
    rules.sinks_stride = sinks->strides[0];
    rules.sinks = sinks->as<const float>() + first_head * rules.sinks_stride;
  }
  return rules;
}

ScoreRules score_rules(const FlashAttentionArgs& args) {
  const double scale = args.scale.value_or(1.0 / std::sqrt(static_cast<double>(args.q.shape[2])));
  return score_rules(scale, args.softcap, args.alibi_slopes, args.sinks, 0);
}

HeadScales head_scales(const KvLayerView& keys, const KvLayerView& values) {
  return {.keys = reinterpret_cast<const float*>(keys.scales.data),
          .values = reinterpret_cast<const float*>(values.scales.data),
          .key_stride = keys.scales.head_stride,
          .value_stride = values.scales.head_stride};
}

}  // namespace quire::cuda
