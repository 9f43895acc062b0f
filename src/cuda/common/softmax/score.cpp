// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/softmax/score.h"

#include <cmath>

#include "quire/kv_layer_view.h"
#include "quire/ops/flash_attention.h"

namespace quire::cuda {

ScoreRules score_rules(const FlashAttentionArgs& args) {
  const double scale = args.scale.value_or(1.0 / std::sqrt(static_cast<double>(args.q.shape[2])));
  ScoreRules rules{.scale = static_cast<float>(scale), .softcap = static_cast<float>(args.softcap)};
  if (args.alibi_slopes.has_value()) {
    rules.alibi_slopes = args.alibi_slopes->as<const float>();
    rules.alibi_stride = args.alibi_slopes->strides[0];
  }
  if (args.sinks.has_value()) {
    rules.sinks = args.sinks->as<const float>();
    rules.sinks_stride = args.sinks->strides[0];
  }
  return rules;
}

HeadScales head_scales(const KvLayerView& keys, const KvLayerView& values) {
  return {.keys = reinterpret_cast<const float*>(keys.scales.data),
          .values = reinterpret_cast<const float*>(values.scales.data),
          .key_stride = keys.scales.head_stride,
          .value_stride = values.scales.head_stride};
}

}  // namespace quire::cuda
