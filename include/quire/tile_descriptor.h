// SPDX-License-Identifier: Apache-2.0
// What a hardware tensor map would be told, as a plain value: comparable, printable and checkable
// without a GPU. The CUDA backend encodes it; the builders in tile_builders.h make it from an
// operand's row matrix.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/dtype.h"
#include "quire/export.h"
#include "quire/tile_geometry.h"

namespace quire {

enum class L2Promotion : std::uint8_t { none, b64, b128, b256 };

// Not fields, because they never vary: no interleaving, and elements outside the dims load as 0.
struct QUIRE_API TileDescriptor {
  static constexpr int kMaxRank = 5;

  DType dtype = DType::bf16;
  int rank = 0;
  // Fastest dimension first, in elements. The fastest has stride 1 and no entry in strides_bytes.
  std::array<std::int64_t, kMaxRank> dims{};
  std::array<std::int64_t, kMaxRank - 1> strides_bytes{};  // of dims 1 … rank-1
  std::array<std::int32_t, kMaxRank> box{};                // elements one copy moves
  std::array<std::int32_t, kMaxRank> element_strides{1, 1, 1, 1, 1};
  Swizzle swizzle = Swizzle::none;
  L2Promotion l2_promotion = L2Promotion::none;
  // From the operand's base to coordinate 0. Negative for the ragged tile.
  std::int64_t base_offset_bytes = 0;

  // What one copy writes to shared memory, in or out of bounds.
  std::int64_t box_bytes() const;
  std::string describe() const;  // "bf16 dims(128, 8, 4096) strides(256, 2048) box(64, 1, 64) b128"
  bool operator==(const TileDescriptor&) const = default;
};

// Throws Error that names the first hardware limit which the descriptor breaks. base_address is the
// operand's base; 0 checks the offset alone.
QUIRE_API void validate_descriptor(const TileDescriptor& descriptor,
                                   std::uintptr_t base_address = 0);

QUIRE_API std::string_view name(Swizzle swizzle);           // "b128"
QUIRE_API std::string_view name(L2Promotion l2_promotion);  // "l2_b128"

}  // namespace quire
