// SPDX-License-Identifier: Apache-2.0
// How a tile of K or V rows meets shared memory: pure functions, evaluated by the descriptor
// builders, by the kernels that issue the copies and by the code that sets the expected bytes. All
// three must agree, or a transaction barrier waits for ever; so there is one function for each
// number.
#pragma once

#include <cstdint>

#include "quire/dtype.h"
#include "quire/host_device.h"

namespace quire {

// Shared-memory swizzle of a tensor-map copy, named after its span.
enum class Swizzle : std::uint8_t { none, b32, b64, b128 };

QUIRE_HOST_DEVICE constexpr int ceil_div(int value, int divisor) {
  return (value + divisor - 1) / divisor;
}
QUIRE_HOST_DEVICE constexpr int round_up(int value, int multiple) {
  return ceil_div(value, multiple) * multiple;
}

// Span in bytes. Without a swizzle the span is one 16-byte unit, not 0.
QUIRE_HOST_DEVICE constexpr int swizzle_bytes(Swizzle swizzle) {
  return 16 << static_cast<int>(swizzle);
}
// Columns of one span: the depth that one copy moves per row (a "granule").
QUIRE_HOST_DEVICE constexpr int swizzle_granularity(DType dtype, Swizzle swizzle) {
  return swizzle_bytes(swizzle) * 8 / bits(dtype);
}
// Depth rounded up to whole granules; the copy fills the columns past the row's end with zeros.
QUIRE_HOST_DEVICE constexpr int padded_depth(DType dtype, Swizzle swizzle, int depth) {
  return round_up(depth, swizzle_granularity(dtype, swizzle));
}
QUIRE_HOST_DEVICE constexpr int depth_chunks(DType dtype, Swizzle swizzle, int depth) {
  return ceil_div(depth, swizzle_granularity(dtype, swizzle));
}

}  // namespace quire
