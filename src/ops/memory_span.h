// SPDX-License-Identifier: Apache-2.0
// Where the elements of a view lie in memory, without overflow and without reading them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "quire/tensor_view.h"

namespace quire::ops {

// Larger tensors are refused: sums of a few sizes below it cannot overflow either.
inline constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;

// a · b, or the largest int64 where that is not enough. Sizes are never negative here.
constexpr std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  const bool overflows = __builtin_mul_overflow(a, b, &product);
  return overflows ? std::numeric_limits<std::int64_t>::max() : product;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0);
}

// Bytes from the first to the last element, 0 for an empty view. Nothing if the elements, or their
// distance, pass kMaxBytes; a size of 0 counts as 1 there, so that products of other sizes stay
// safe too.
inline std::optional<std::int64_t> span_bytes(const TensorView& view) {
  constexpr std::int64_t kMaxElements = kMaxBytes / 8;  // of the widest dtype
  std::int64_t count = 1;
  std::int64_t last = 0;
  bool is_empty = false;
  for (int dim = 0; dim < view.rank; ++dim) {
    const std::int64_t size = view.shape[dim];
    is_empty = is_empty || size == 0;
    if (size > 1) {
      count = saturating_product(count, size);
      const std::int64_t reach = saturating_product(size - 1, view.strides[dim]);
      if (count > kMaxElements || reach > kMaxElements - last) return std::nullopt;
      last += reach;
    }
  }
  return is_empty ? 0 : bytes_for(view.dtype, last + 1);
}

// No kernel asks for more: TMA and vector loads want 16 bytes. Higher powers would only tell apart problems that have
// the same plan.
inline constexpr std::int64_t kMostRowAlignment = 16;
// Largest power of two up to that which divides the view's address and its byte strides, the last
// dimension's excepted.
std::int64_t row_alignment(const TensorView& view);

// Same memory, same dtype, same layout.
bool is_same_view(const TensorView& a, const TensorView& b);

// Whether some byte belongs to both. Interleaved views of one buffer may share a span and no element:
// they do not overlap. False where strides without any order leave it open (ops/bounded_sum.h).
bool surely_overlaps(const TensorView& a, const TensorView& b);

// Whether two of its elements are one, likewise. The view has a span (span_bytes).
bool surely_overlaps_itself(const TensorView& view);

}  // namespace quire::ops
