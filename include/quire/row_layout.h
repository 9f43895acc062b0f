// SPDX-License-Identifier: Apache-2.0
// One row of K or V: where it stands, and how its bytes are numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/export.h"
#include "quire/row_format.h"

namespace quire {

// One token's row of one head, and its scales in the scales tensor. Without initial values: kernels
// have arrays of them.
struct RowAddress {
  std::byte* row;    // null: there is no such row
  std::byte* plane;  // slot 0; null: no scales tensor, or no page in it

  bool operator==(const RowAddress&) const = default;
};

// The scales tensor behind RowAddress::plane.
struct ScalePlane {
  DType dtype = DType::f32;
  std::int64_t slot_stride = 0;  // elements
  // The user's, calibrated: ops read them and never write them.
  bool are_static = false;

  bool operator==(const ScalePlane&) const = default;
};

struct QUIRE_API RowLayout {
  RowFormat format{};
  ScalePlane plane{};

  std::int32_t width() const { return format.width(); }

  // The value of a logical column: stored number × its scale, wherever the scale stands, and for u4
  // its zero added. 0 without a row.
  double load(const RowAddress& address, std::int32_t column) const;
  // The stored number alone.
  double load_quantized(const RowAddress& address, std::int32_t column) const;
  // The scale that belongs to a column: slot = column / granularity, rounded down. 1 for an
  // unscaled part, 0 where the scale has no place.
  double load_scale(const RowAddress& address, std::int32_t column) const;
  // The value of code 0: 0 but for u4.
  double load_zero(const RowAddress& address, std::int32_t column) const;
  // Rounds to the part's dtype (fp8 saturating) and stores; nothing is scaled here. Dropped without
  // a row.
  void store(const RowAddress& address, std::int32_t column, double value) const;
  // Writes the scale that belongs to a column. Dropped if it has no place, is static, or the part
  // has none.
  void store_scale(const RowAddress& address, std::int32_t column, double scale) const;
  // The same of a zero, behind the scale.
  void store_zero(const RowAddress& address, std::int32_t column, double zero) const;

  bool operator==(const RowLayout&) const = default;

 private:
  std::byte* scale_address(const RowAddress& address, std::int32_t column) const;
};

}  // namespace quire
