// SPDX-License-Identifier: Apache-2.0
// Executes a tile descriptor on host memory, as the hardware would: coordinates in, bytes of shared
// memory (before the swizzle) out. Elements outside the dims are zeros; elements inside them must
// lie inside the allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "quire/tile_descriptor.h"

namespace quire::testing {

using Coordinate = std::array<std::int64_t, 5>;

class TileSimulator {
 public:
  // base: what the descriptor's base_offset_bytes counts from.
  TileSimulator(std::span<const std::byte> allocation, const std::byte* base)
      : allocation_(allocation), base_(base) {}

  std::vector<std::byte> copy(const TileDescriptor& tile, const Coordinate& origin) const {
    const auto size = static_cast<std::size_t>(bytes_for(tile.dtype, 1));
    std::vector<std::byte> smem(static_cast<std::size_t>(tile.box_bytes()));
    for (std::size_t i = 0; i * size < smem.size(); ++i) {
      fetch(tile, element_at(tile, origin, i), smem.data() + i * size, size);
    }
    return smem;
  }

  // Four rows from one column on.
  std::vector<std::byte> gather4(const TileDescriptor& tile, std::int64_t column,
                                 const std::array<std::int32_t, 4>& rows) const {
    std::vector<std::byte> smem;
    for (const std::int32_t row : rows) {
      const std::vector<std::byte> line = copy(tile, {column, row});
      smem.insert(smem.end(), line.begin(), line.end());
    }
    return smem;
  }

 private:
  static Coordinate element_at(const TileDescriptor& tile, const Coordinate& origin,
                               std::size_t index) {
    Coordinate at{};
    auto rest = static_cast<std::int64_t>(index);
    for (int dim = 0; dim < tile.rank; ++dim) {
      at[dim] = origin[dim] + rest % tile.box[dim];
      rest /= tile.box[dim];
    }
    return at;
  }

  void fetch(const TileDescriptor& tile, const Coordinate& at, std::byte* out,
             std::size_t size) const {
    std::int64_t offset = tile.base_offset_bytes + at[0] * static_cast<std::int64_t>(size);
    for (int dim = 0; dim < tile.rank; ++dim) {
      if (at[dim] < 0 || at[dim] >= tile.dims[dim]) return;  // smem starts as zeros
      if (dim > 0) offset += at[dim] * tile.strides_bytes[dim - 1];
    }
    const std::int64_t start = base_ - allocation_.data() + offset;
    const bool inside = start >= 0 && start + static_cast<std::int64_t>(size) <=
                                          static_cast<std::int64_t>(allocation_.size());
    ASSERT_TRUE(inside) << "read outside the allocation: " << tile.describe();
    std::memcpy(out, allocation_.data() + start, size);
  }

  std::span<const std::byte> allocation_;
  const std::byte* base_;
};

// The elements of a tile that moved 32-bit numbers.
inline std::vector<std::uint32_t> words(const std::vector<std::byte>& bytes) {
  std::vector<std::uint32_t> result(bytes.size() / sizeof(std::uint32_t));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

}  // namespace quire::testing
