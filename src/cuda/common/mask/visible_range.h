// SPDX-License-Identifier: Apache-2.0
// Masks that show every query one interval of keys: causal, windows, chunks and what all of them
// allow. Others (a tree, either of two) are not of this kind; nor are intervals that tokens bring
// themselves, by which a kernel may narrow those here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "quire/host_device.h"
#include "quire/mask.h"

namespace quire::cuda {

struct KeyInterval {
  int first;
  int end;
};

struct VisibleRange {
  static constexpr int kUnbounded = 0x3fffffff;  // twice it is still an int

  int ahead = kUnbounded;   // keys after the query's position that it sees; 0: causal
  int window = kUnbounded;  // |q - k| < window
  int chunk = kUnbounded;   // q / chunk == k / chunk

  // Keys of the num_keys that a query at `position` sees. Both ends grow with the position.
  QUIRE_HOST_DEVICE KeyInterval of(int position, int num_keys) const {
    int first = position - window + 1;
    const int reach = ahead < window - 1 ? ahead : window - 1;
    int end = position + reach + 1;
    if (chunk != kUnbounded) {
      const int chunk_first = position / chunk * chunk;
      first = first > chunk_first ? first : chunk_first;
      end = end < chunk_first + chunk ? end : chunk_first + chunk;
    }
    return {.first = first > 0 ? first : 0, .end = end < num_keys ? end : num_keys};
  }
};

// Of a mask that shows intervals; trees and key intervals in it are left out.
inline VisibleRange visible_range(const MaskSummary& mask) {
  const auto clamp_size = [](std::int64_t size) {
    return static_cast<int>(std::min<std::int64_t>(size, VisibleRange::kUnbounded));
  };
  return {.ahead = clamp_size(mask.ahead),
          .window = clamp_size(mask.window),
          .chunk = clamp_size(mask.chunk)};
}
// Empty, or why the mask is not of this kind. Two chunked ones in it are not.
inline std::string refuse_range(const MaskSummary& mask) {
  if (mask.trees > 0) return "the mask has a tree";
  if (mask.is_interval && mask.key_intervals > 0) return "the mask has key intervals";
  return mask.is_interval ? "" : "the mask shows more than one interval of keys";
}

// Key intervals as kernels read them: bounds that every token brings itself, and that may be anything.

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
