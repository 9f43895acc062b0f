// SPDX-License-Identifier: Apache-2.0
#include "quire/tile_descriptor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/error.h"

namespace quire {
namespace {

constexpr std::int64_t kMaxDim = std::int64_t{1} << 32;
constexpr std::int64_t kStrideLimit = std::int64_t{1} << 40;
constexpr int kMaxBox = 256;
constexpr int kMaxElementStride = 8;
constexpr int kUnitBytes = 16;  // addresses, strides and inner boxes come in these

// Texts are made where a limit is broken and nowhere else: every launch of a kernel with a tensor map comes through here.
template <typename Value>
void require(bool holds, const char* field, const char* expected, Value actual) {
  if (holds) return;
  throw Error(ErrorCode::invalid_value, "tile_descriptor", field, expected, fmt::to_string(actual));
}

template <typename Value>
void require(bool holds, const char* field, int index, const char* expected, Value actual) {
  if (holds) return;
  require(false, fmt::format("{}[{}]", field, index).c_str(), expected, actual);
}

void check_dims(const TileDescriptor& tile) {
  for (int i = 0; i < tile.rank; ++i) {
    require(tile.dims[i] >= 1 && tile.dims[i] <= kMaxDim, "dims", i, "in [1, 2^32]", tile.dims[i]);
    require(tile.box[i] >= 1 && tile.box[i] <= kMaxBox, "box", i, "in [1, 256]", tile.box[i]);
    require(tile.element_strides[i] >= 1 && tile.element_strides[i] <= kMaxElementStride,
            "element_strides", i, "in [1, 8]", tile.element_strides[i]);
  }
}

void check_strides(const TileDescriptor& tile) {
  for (int i = 0; i + 1 < tile.rank; ++i) {
    const std::int64_t stride = tile.strides_bytes[i];
    require(stride % kUnitBytes == 0, "strides_bytes", i, "a multiple of 16", stride);
    require(stride >= 0 && stride < kStrideLimit, "strides_bytes", i, "in [0, 2^40)", stride);
  }
}

void check_inner_box(const TileDescriptor& tile) {
  const std::int64_t inner_bytes = bytes_for(tile.dtype, tile.box[0]);
  require(inner_bytes % kUnitBytes == 0, "box", 0, "a multiple of 16 bytes", inner_bytes);
  if (tile.swizzle == Swizzle::none) return;
  const int span = swizzle_bytes(tile.swizzle);
  if (inner_bytes <= span) return;
  require(false, "box", 0,
          fmt::format("at most {} bytes for swizzle {}", span, name(tile.swizzle)).c_str(),
          inner_bytes);
}

}  // namespace

std::string_view name(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::none:
      return "none";
    case Swizzle::b32:
      return "b32";
    case Swizzle::b64:
      return "b64";
    case Swizzle::b128:
      return "b128";
  }
  return "";
}

std::string_view name(L2Promotion l2_promotion) {
  switch (l2_promotion) {
    case L2Promotion::none:
      return "none";
    case L2Promotion::b64:
      return "l2_b64";
    case L2Promotion::b128:
      return "l2_b128";
    case L2Promotion::b256:
      return "l2_b256";
  }
  return "";
}

std::int64_t TileDescriptor::box_bytes() const {
  std::int64_t elements = rank > 0 ? 1 : 0;
  for (int i = 0; i < rank; ++i) elements *= box[i];
  return bytes_for(dtype, elements);
}

std::string TileDescriptor::describe() const {
  const auto list = [](auto first, int count) {
    return fmt::format("({})", fmt::join(first, first + count, ", "));
  };
  std::string text = fmt::format("{} dims{}", quire::name(dtype), list(dims.begin(), rank));
  if (rank > 1) text += " strides" + list(strides_bytes.begin(), rank - 1);
  text += " box" + list(box.begin(), rank);
  if (swizzle != Swizzle::none) text += fmt::format(" {}", quire::name(swizzle));
  if (l2_promotion != L2Promotion::none) text += fmt::format(" {}", quire::name(l2_promotion));
  if (base_offset_bytes != 0) text += fmt::format(" at {:+}", base_offset_bytes);
  return text;
}

void validate_descriptor(const TileDescriptor& descriptor, std::uintptr_t base_address) {
  require(descriptor.rank >= 1 && descriptor.rank <= TileDescriptor::kMaxRank, "rank", "in [1, 5]",
          descriptor.rank);
  require(bits(descriptor.dtype) >= 8, "dtype", "of whole bytes", name(descriptor.dtype));
  check_dims(descriptor);
  check_strides(descriptor);
  check_inner_box(descriptor);
  const std::int64_t base = static_cast<std::int64_t>(base_address) + descriptor.base_offset_bytes;
  require(base % kUnitBytes == 0, "base", "aligned to 16 bytes", base);
}

}  // namespace quire
