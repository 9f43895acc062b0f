// SPDX-License-Identifier: Apache-2.0
// Key intervals as kernels read them: bounds that every token brings itself, and that may be anything.
#pragma once

#include <cstdint>

#include "cuda/common/mask/visible_range.h"
#include "quire/host_device.h"
#include "quire/mask.h"

namespace quire::cuda {

struct TokenIntervals {
  const std::int32_t* begin = nullptr;  // [tokens]; null: no token has bounds of its own
  const std::int32_t* end = nullptr;    // [tokens]
  std::int64_t begin_stride = 0;        // elements
  std::int64_t end_stride = 0;

  QUIRE_HOST_DEVICE bool are_given() const { return begin != nullptr; }
  QUIRE_HOST_DEVICE KeyInterval of(std::int64_t token) const {
    return {.first = begin[token * begin_stride], .end = end[token * end_stride]};
  }
  // Of `keys`, what the token's own bounds leave; none where first >= end. Neither is negative, whatever the bounds are:
  // kernels subtract keys from them.
  QUIRE_HOST_DEVICE KeyInterval narrow(KeyInterval keys, std::int64_t token) const {
    const KeyInterval own = of(token);
    const int end = keys.end < own.end ? keys.end : own.end;
    return {.first = keys.first > own.first ? keys.first : own.first, .end = end > 0 ? end : 0};
  }
};

inline TokenIntervals token_intervals(const Mask::Node& node) {
  return {.begin = node.begin.as<const std::int32_t>(),
          .end = node.end.as<const std::int32_t>(),
          .begin_stride = node.begin.strides[0],
          .end_stride = node.end.strides[0]};
}
// Of the one such part of a mask, or none.
inline TokenIntervals token_intervals(const Mask& mask) {
  for (const Mask::Node& node : mask.nodes()) {
    if (node.kind == MaskKind::key_intervals) return token_intervals(node);
  }
  return {};
}

// As refuse_range(), for kernels that narrow a row's interval by its token's own.
inline std::string refuse_narrowed_range(MaskSummary mask) {
  if (mask.key_intervals > 1) return "the mask joins more than one set of key intervals";
  mask.key_intervals = 0;
  return refuse_range(mask);
}

}  // namespace quire::cuda
