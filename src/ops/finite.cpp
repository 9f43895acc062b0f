// SPDX-License-Identifier: Apache-2.0
#include "ops/finite.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "quire/element.h"

namespace quire::ops {
namespace {

// Index of the first element whose exponent bits are all set, `size` if there is none.
template <typename Word>
std::int64_t scan_row(const Word* row, std::int64_t size, std::int64_t stride, Word exponent) {
  // Blocks without an early exit, so that a dense row is compared several elements at a time.
  constexpr std::int64_t kBlock = 256;
  for (std::int64_t begin = 0; begin < size; begin += kBlock) {
    const std::int64_t end = begin + kBlock < size ? begin + kBlock : size;
    bool found = false;
    for (std::int64_t i = begin; i < end; ++i) found |= (row[i * stride] & exponent) == exponent;
    for (std::int64_t i = begin; found && i < end; ++i) {
      if ((row[i * stride] & exponent) == exponent) return i;
    }
  }
  return size;
}

std::int64_t scan_row(const TensorView& view, std::int64_t offset, std::int64_t size,
                      std::int64_t stride) {
  const auto* words = view.as<const std::uint16_t>() + offset;
  switch (view.dtype) {
    case DType::f32:
      return scan_row(view.as<const std::uint32_t>() + offset, size, stride, 0x7f800000u);
    case DType::f16:
      return scan_row(words, size, stride, std::uint16_t{0x7c00});
    case DType::bf16:
      return scan_row(words, size, stride, std::uint16_t{0x7f80});
    case DType::e8m0:
      return scan_row(view.as<const std::uint8_t>() + offset, size, stride, std::uint8_t{0xff});
    default:
      return size;
  }
}

}  // namespace

std::optional<NotFinite> find_not_finite(const TensorView& view) {
  std::array<std::int64_t, kMaxRank> index{};
  const int last = view.rank - 1;
  const std::int64_t columns = view.rank > 0 ? view.shape[last] : 1;
  const std::int64_t rows = columns > 0 ? view.numel() / columns : 0;
  const std::int64_t stride = view.rank > 0 ? view.strides[last] : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t offset = 0;
    for (int dim = 0; dim < last; ++dim) offset += index[dim] * view.strides[dim];
    const std::int64_t column = scan_row(view, offset, columns, stride);
    if (column < columns) {
      if (view.rank > 0) index[last] = column;
      return NotFinite{
          .index = fmt::format("[{}]", fmt::join(index.begin(), index.begin() + view.rank, ", ")),
          .value = load_element(view.data, view.dtype, offset + column * stride)};
    }
    for (int dim = last - 1; dim >= 0 && ++index[dim] == view.shape[dim]; --dim) index[dim] = 0;
  }
  return std::nullopt;
}

}  // namespace quire::ops
