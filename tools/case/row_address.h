// SPDX-License-Identifier: Apache-2.0
// Where rows and scales of a cache stand, worked out from the tensors alone: the cases must not
// trust the views that the ops read through, or a wrong offset there would be wrong on both sides
// and cancel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/paged_kv_cache.h"

namespace quire::tools {

enum class Side : std::uint8_t { key, value };

struct RowPlace {
  std::int64_t layer;
  Side side;
  std::int64_t sequence;
  std::int64_t token;
  std::int64_t head;
};

// Null where the page is unassigned.
std::byte* row_address(const PagedKVCache& cache, const RowPlace& place);
// Of one slot of the scale plane; null without a plane, too.
std::byte* scale_address(const PagedKVCache& cache, const RowPlace& place, std::int64_t slot);
bool has_static_scales(const PagedKVCache& cache);

// A logical column of a row: the stored number, the scale it is multiplied by (1 for unscaled
// parts), and what is added then (0 but for u4).
struct StoredNumber {
  double value() const { return number * scale + zero; }

  double number;
  double scale;
  double zero;
  DType dtype;
};
StoredNumber read_number(const PagedKVCache& cache, const RowPlace& place, std::int32_t column);

}  // namespace quire::tools
