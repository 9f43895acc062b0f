// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "quire/host_device.h"

namespace quire {

struct KvLayerView;  // kernels include this file: what a cache is does not concern them

}  // namespace quire

namespace quire::cuda {

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
