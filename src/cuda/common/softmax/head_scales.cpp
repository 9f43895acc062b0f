// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/softmax/head_scales.h"

#include "quire/kv_layer_view.h"

namespace quire::cuda {

HeadScales head_scales(const KvLayerView& keys, const KvLayerView& values) {
  return {.keys = reinterpret_cast<const float*>(keys.scales.data),
          .values = reinterpret_cast<const float*>(values.scales.data),
          .key_stride = keys.scales.head_stride,
          .value_stride = values.scales.head_stride};
}

}  // namespace quire::cuda
