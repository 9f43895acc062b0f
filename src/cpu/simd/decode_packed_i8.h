// SPDX-License-Identifier: Apache-2.0
// Packed integers as bytes, a zero point of at most 128 taken off: [depth / 8][2][width][4], bytes k0 k4 k1 k5, then
// k2 k6 k3 k7, the order of packed 8-bit numbers.
#pragma once

#include "cpu/simd/decode_packed.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

// Codes of 4 bits less a zero point per column.
struct NibbleBytes {
  static U32Vector zeros(const PackedScales& scales, std::int64_t group, std::int64_t column,
                         bool is_middle) {
    const U32Vector zero = scales.zeros(group, column, is_middle);
    const U32Vector pair = hn::Or(zero, hn::ShiftLeft<8>(zero));
    return hn::Or(pair, hn::ShiftLeft<16>(pair));
  }
  static U32Vector low(U32Vector words, U32Vector zeros) {
    return less(bits_at<0>(words, 0x0f0f0f0fu), zeros);
  }
  static U32Vector high(U32Vector words, U32Vector zeros) {
    return less(bits_at<4>(words, 0x0f0f0f0fu), zeros);
  }

 private:
  static U32Vector less(U32Vector codes, U32Vector zeros) {
    const hn::Repartition<std::uint8_t, U32Tag> u8;
    return hn::BitCast(U32Tag(), hn::Sub(hn::BitCast(u8, codes), hn::BitCast(u8, zeros)));
  }
};

// Codes that stand for the numbers of a table.
struct TableBytes {
  TableNumbers table;

  static U32Vector zeros(const PackedScales&, std::int64_t, std::int64_t, bool) {
    return hn::Zero(U32Tag());
  }
  U32Vector low(U32Vector words, U32Vector) const { return table.low(words); }
  U32Vector high(U32Vector words, U32Vector) const { return table.high(words); }
};

// Columns [k, k + depth) of W, whole groups, of one panel of 4-bit codes.
template <typename Bytes>
inline void decode_packed_i8(const Bytes& bytes, const WeightView& w, std::int64_t panel,
                             std::int64_t k, std::int64_t depth, std::int8_t* out) {
  const U32Tag u32;
  const std::int64_t width = w.packed.width;
  const PackedScales scales(w, panel);
  for (std::int64_t column = 0; column < width; column += kF32Lanes) {
    const std::byte* source = packed_block(w, panel, k) + 4 * column;
    auto* to = reinterpret_cast<std::uint32_t*>(out) + column;
    for (std::int64_t at = 0; at < depth; at += w.group) {
      const U32Vector zeros = bytes.zeros(scales, (k + at) / w.group, column, has_middle_zero(w));
      for (std::int64_t i = 0; i < w.group; i += 8, source += 4 * width, to += 2 * width) {
        const U32Vector words = load_words(source);
        hn::StoreU(bytes.low(words, zeros), u32, to);
        hn::StoreU(bytes.high(words, zeros), u32, to + width);
      }
    }
  }
}

inline void decode_packed_i8(const WeightView& w, std::int64_t panel, std::int64_t k,
                             std::int64_t depth, std::int8_t* out) {
  if (has_table(w)) {
    return decode_packed_i8(TableBytes{TableNumbers(w.block->values)}, w, panel, k, depth, out);
  }
  decode_packed_i8(NibbleBytes(), w, panel, k, depth, out);
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
