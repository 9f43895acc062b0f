// SPDX-License-Identifier: Apache-2.0
// A plain weight into panels (order: cpu/fused_qkv_matmul/packed_layout.h). Done once per weight, so
// it is written for reading.
#pragma once

#include "cpu/simd/decode_weight.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Where number (column, k) of a panel stands, in units of its own size.
inline std::int64_t packed_place(const PackedLayout& to, std::int64_t column, std::int64_t k) {
  constexpr std::int64_t kByteOfK[8] = {0, 2, 4, 6, 1, 3, 5, 7};    // word (of 2) · 4 + byte
  constexpr std::int64_t kNibbleOfK[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of a word
  switch (to.bits) {
    case 32:
      return k * to.width + column;
    case 16: {
      const std::int64_t unit = to.packing == WeightPacking::quads_8 ? 4 : 2;
      return (k / unit * to.width + column) * unit + k % unit;
    }
    case 8: {
      const std::int64_t byte = kByteOfK[k % 8];
      return k / 8 * 8 * to.width + (byte / 4 * to.width + column) * 4 + byte % 4;
    }
    default:
      return (k / 8 * to.width + column) * 8 + kNibbleOfK[k % 8];
  }
}

// The stored number (n, k): bits of a float, an i8, or a 4-bit code.
inline std::uint32_t raw_number(const WeightView& w, std::int64_t n, std::int64_t k) {
  const std::byte* row = w.data + n * w.row_stride;
  switch (w.codes) {
    case Codes::f32:
      return load_word(row, k);
    case Codes::f16:
    case Codes::bf16: {
      std::uint16_t code;
      __builtin_memcpy(&code, row + 2 * k, sizeof(code));
      return code;
    }
    case Codes::fp8_e4m3:
    case Codes::fp8_e5m2:
      return static_cast<std::uint32_t>(row[k]);
    case Codes::blocks_32:
      if (w.block->code_bits == 4) return block_code(*w.block, block_at(w, n, k), k % 32);
      return static_cast<std::uint32_t>(block_number(*w.block, block_at(w, n, k), k % 32)) & 255u;
    case Codes::q4_k:
      return static_cast<std::uint32_t>(q4_k_code(block_at(w, n, k), k % 256));
    case Codes::q5_k:
      return static_cast<std::uint32_t>(q5_k_code(block_at(w, n, k), k % 256));
    case Codes::q6_k:
      return static_cast<std::uint32_t>(q6_k_code(block_at(w, n, k), k % 256) - 32) & 255u;
    default: {
      std::uint32_t code = 0;
      with_codes(w, n, [&](auto read) { code = read(k); });
      return code;
    }
  }
}

inline void put_number(const PackedLayout& to, std::int64_t place, std::uint32_t number,
                       std::byte* panel) {
  if (to.bits == 4) {
    const auto nibble = static_cast<std::byte>(number << (place % 2 * 4));
    panel[place / 2] |= nibble;
  } else {
    __builtin_memcpy(panel + place * to.bits / 8, &number, static_cast<std::size_t>(to.bits / 8));
  }
}

// Scale of (n, k), the products of K-quants multiplied out.
inline float packed_scale(const WeightView& w, std::int64_t n, std::int64_t k) {
  if (w.block == nullptr || w.block->is_one_group()) return scale_at(w, n, k);
  const std::byte* block = block_at(w, n, k);
  if (w.codes != Codes::q6_k) return k_group_factors(block, k % 256 / 32).step;
  return f16_at(block + 208) *
         static_cast<float>(static_cast<std::int8_t>(block[192 + k % 256 / 16]));
}

// Columns past the end of W are zeros; so are numbers past the end of K.
inline void pack_panel(const WeightView& from, const PackedLayout& to, std::int64_t panel,
                       std::byte* storage) {
  std::byte* numbers = storage + panel * to.panel_bytes;
  __builtin_memset(numbers, 0, static_cast<std::size_t>(to.panel_bytes));
  const std::int64_t first = panel * to.width;
  const std::int64_t left = from.rows - first;
  const std::int64_t count = left < to.width ? left : to.width;
  for (std::int64_t column = 0; column < count; ++column) {
    for (std::int64_t k = 0; k < from.columns; ++k) {
      put_number(to, packed_place(to, column, k), raw_number(from, first + column, k), numbers);
    }
  }
  for (std::int64_t group = 0; group < to.groups; ++group) {
    for (std::int64_t column = 0; column < to.width; ++column) {
      const std::int64_t k = group * to.group;
      const std::int64_t n = first + column;
      const std::int64_t index = (panel * to.groups + group) * to.width + column;
      const bool is_real = column < count;
      const float scale = is_real ? packed_scale(from, n, k) : 0.0f;
      narrow_row(to.scale_dtype, &scale, 1,
                 storage + to.scale_offset + bytes_for(to.scale_dtype, index));
      if (to.has_zeros) {
        storage[to.zero_offset + index] = static_cast<std::byte>(is_real ? zero_at(from, n, k) : 0);
      }
      if (to.has_mins) {
        const float min = is_real ? min_at(from, n, k) : 0.0f;
        narrow_row(to.min_dtype, &min, 1, storage + to.min_offset + bytes_for(to.min_dtype, index));
      }
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
