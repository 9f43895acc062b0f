// SPDX-License-Identifier: Apache-2.0
#include "ops/memory_span.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "ops/bounded_sum.h"

namespace quire::ops {
namespace {

// A view's elements in half bytes from its first one: the 4-bit types have no smaller step.
std::vector<BoundedTerm> half_byte_steps(const TensorView& view) {
  const std::int64_t unit = bits(view.dtype) / 4;
  std::vector<BoundedTerm> terms{{.coefficient = 1, .bound = unit - 1}};
  for (int dim = 0; dim < view.rank; ++dim) {
    if (view.shape[dim] <= 1) continue;
    terms.push_back({.coefficient = view.strides[dim] * unit, .bound = view.shape[dim] - 1});
  }
  return terms;
}

// Whether every stride steps over all that the smaller ones reach, as those of slices and transposes do: then no two
// elements are one. Of a view that has a span.
bool strides_nest(const TensorView& view) {
  std::array<std::pair<std::int64_t, std::int64_t>, kMaxRank>
      steps;  // (stride, size - 1), ascending
  int count = 0;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    if (view.shape[dim] <= 1) continue;
    int place = count++;
    for (; place > 0 && steps[place - 1].first > view.strides[dim]; --place) {
      steps[place] = steps[place - 1];
    }
    steps[place] = {view.strides[dim], view.shape[dim] - 1};
  }
  std::int64_t reach = 0;
  for (int i = 0; i < count; ++i) {
    const auto [stride, most] = steps[i];
    if (stride <= reach) return false;
    reach += stride * most;
  }
  return true;
}

std::int64_t reach_of(std::span<const BoundedTerm> terms) {
  std::int64_t reach = 0;
  for (const BoundedTerm& term : terms) reach += term.coefficient * term.bound;
  return reach;
}

}  // namespace

std::int64_t row_alignment(const TensorView& view) {
  std::uint64_t bits_set = reinterpret_cast<std::uintptr_t>(view.data) | kMostRowAlignment;
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
  if (view.numel() == 0 || strides_nest(view)) return false;
  // Two elements are one where the differences of their indices, not all 0, cancel out. The first of them that is
  // not 0 is positive, by choice of the two.
  for (int first = 0; first < view.rank; ++first) {
    if (view.shape[first] <= 1) continue;
    std::vector<BoundedTerm> terms{
        {.coefficient = view.strides[first], .bound = view.shape[first] - 2}};
    std::int64_t target = -view.strides[first];
    for (int dim = first + 1; dim < view.rank; ++dim) {
      const std::int64_t most = view.shape[dim] - 1;
      terms.push_back({.coefficient = view.strides[dim], .bound = 2 * most});
      target += view.strides[dim] * most;
    }
    if (can_sum_to(std::move(terms), target).value_or(false)) return true;
  }
  return false;
}

bool surely_overlaps(const TensorView& a, const TensorView& b) {
  const std::optional<std::int64_t> a_bytes = span_bytes(a);
  const std::optional<std::int64_t> b_bytes = span_bytes(b);
  if (!a_bytes.has_value() || !b_bytes.has_value() || *a_bytes == 0 || *b_bytes == 0) return false;
  const auto a_first = reinterpret_cast<std::uintptr_t>(a.data);
  const auto b_first = reinterpret_cast<std::uintptr_t>(b.data);
  const bool is_b_later = b_first >= a_first;
  const std::uintptr_t distance = is_b_later ? b_first - a_first : a_first - b_first;
  if (distance >= static_cast<std::uintptr_t>(is_b_later ? *a_bytes : *b_bytes)) return false;
  // Steps in a are steps back from the end of b: both of them have to make up the way from a to b's end.
  std::vector<BoundedTerm> terms = half_byte_steps(a);
  const std::vector<BoundedTerm> back = half_byte_steps(b);
  const std::int64_t half_bytes = 2 * static_cast<std::int64_t>(distance);
  const std::int64_t target = reach_of(back) + (is_b_later ? half_bytes : -half_bytes);
  terms.insert(terms.end(), back.begin(), back.end());
  return can_sum_to(std::move(terms), target).value_or(false);
}

}  // namespace quire::ops
