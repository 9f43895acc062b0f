// SPDX-License-Identifier: Apache-2.0
#include "ops/memory_span.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace quire::ops {
namespace {

struct Bytes {
  std::uintptr_t first = 0;
  std::uintptr_t last = 0;  // inclusive
  bool has_gaps = false;

  bool contains(std::uintptr_t address) const { return first <= address && address <= last; }
};

std::optional<Bytes> locate(const TensorView& view) {
  const std::optional<std::int64_t> span = span_bytes(view);
  if (!span.has_value() || *span == 0) return std::nullopt;
  const auto first = reinterpret_cast<std::uintptr_t>(view.data);
  return Bytes{.first = first,
               .last = first + static_cast<std::uintptr_t>(*span) - 1,
               .has_gaps = bytes_for(view.dtype, view.numel()) != *span};
}

}  // namespace

std::optional<std::int64_t> span_bytes(const TensorView& view) {
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

std::int64_t row_alignment(const TensorView& view) {
  std::uint64_t bits_set = reinterpret_cast<std::uintptr_t>(view.data) | 128;
  for (int dim = 0; dim + 1 < view.rank; ++dim) {
    if (view.shape[dim] > 1) {
      bits_set |= static_cast<std::uint64_t>(bytes_for(view.dtype, view.strides[dim]));
    }
  }
  return static_cast<std::int64_t>(bits_set & (~bits_set + 1));
}

bool is_same_view(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && std::ranges::equal(a.dims(), b.dims()) &&
         std::equal(a.strides.begin(), a.strides.begin() + a.rank, b.strides.begin());
}

bool surely_overlaps_itself(const TensorView& view) {
  if (view.numel() == 0) return false;
  std::array<std::pair<std::int64_t, std::int64_t>, kMaxRank> all{};  // stride, size
  for (int dim = 0; dim < view.rank; ++dim) all[dim] = {view.strides[dim], view.shape[dim]};
  const std::span dims(all.data(), static_cast<std::size_t>(view.rank));
  std::ranges::sort(dims);
  std::int64_t count = 1;
  std::int64_t last = 0;
  for (const auto& [stride, size] : dims) {
    count *= size;
    last += (size - 1) * stride;
    if (count > last + 1) return true;  // more elements than places for them
  }
  return false;
}

bool surely_overlaps(const TensorView& a, const TensorView& b) {
  const std::optional<Bytes> left = locate(a);
  const std::optional<Bytes> right = locate(b);
  if (!left.has_value() || !right.has_value()) return false;
  if (left->first == right->first) return true;
  // Both ends of a view are elements, so an end inside a block without gaps is shared.
  const bool right_in_left = left->contains(right->first) || left->contains(right->last);
  const bool left_in_right = right->contains(left->first) || right->contains(left->last);
  return (!left->has_gaps && right_in_left) || (!right->has_gaps && left_in_right);
}

}  // namespace quire::ops
