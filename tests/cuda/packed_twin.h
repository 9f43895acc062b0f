// SPDX-License-Identifier: Apache-2.0
// A projection's arguments on the GPU, with the weight as it is and packed there.
#pragma once

#include "device_twin.h"
#include "quire/pack_weight.h"

namespace quire::test {

struct PackedTwin {
  DeviceTwin twin;
  cuda::DeviceBuffer storage;
  FusedQkvArgs plain;
  FusedQkvArgs packed;

  explicit PackedTwin(const FusedQkvArgs& host) : plain(twin.move(host)), packed(plain) {
    const std::int64_t bytes = packed_bytes(plain.weight);
    storage = cuda::DeviceBuffer(bytes);
    packed.weight = pack_weight(
        plain.weight,
        TensorView::contiguous(storage.data(), DType::u8, {bytes}, plain.weight.data.device));
  }
};

}  // namespace quire::test
