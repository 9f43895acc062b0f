// SPDX-License-Identifier: Apache-2.0
// The numbers of a packed weight (orders: cpu/fused_qkv_matmul/packed_layout.h), eight k at a time:
// one vector of columns per k. Every lane is a column, so the code is the same for all widths.
#pragma once

#include "cpu/fused_qkv_matmul/job.h"
#include "cpu/simd/convert_row.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

inline U32Vector load_words(const std::byte* source) {
  return load_anywhere(U32Tag(), source);
}

template <int kShift> inline U32Vector bits_at(U32Vector words, std::uint32_t mask) {
  return hn::And(hn::ShiftRight<kShift>(words), hn::Set(U32Tag(), mask));
}

inline F32Vector f32_of_ints(U32Vector ints) {
  return hn::ConvertTo(F32Tag(), hn::BitCast(hn::RebindToSigned<U32Tag>(), ints));
}

// 4-bit codes minus a zero point per column.
struct NibbleNumbers {
  static constexpr int kBits = 4;
  static constexpr int kColumnBytes = 4;  // from one column to the next
  template <int kShift> static F32Vector at(U32Vector words, U32Vector zeros) {
    return f32_of_ints(hn::Sub(bits_at<kShift>(words, 15u), zeros));
  }
  static void load(const std::byte* source, std::int64_t, U32Vector zeros, F32Vector (&rows)[8]) {
    const U32Vector words = load_words(source);
    rows[0] = at<0>(words, zeros);
    rows[1] = at<16>(words, zeros);
    rows[2] = at<4>(words, zeros);
    rows[3] = at<20>(words, zeros);
    rows[4] = at<8>(words, zeros);
    rows[5] = at<24>(words, zeros);
    rows[6] = at<12>(words, zeros);
    rows[7] = at<28>(words, zeros);
  }
};

// Bytes: kDecode makes f32 of a byte in the low bits of a lane, whatever stands above it.
template <typename Decode> struct ByteNumbers {
  static constexpr int kBits = 8;
  static constexpr int kColumnBytes = 4;
  static void load(const std::byte* source, std::int64_t width, U32Vector, F32Vector (&rows)[8]) {
    spread(load_words(source), load_words(source + 4 * width), rows);
  }
  // low: k0 k4 k1 k5, high: k2 k6 k3 k7.
  static void spread(U32Vector low, U32Vector high, F32Vector (&rows)[8]) {
    rows[0] = Decode::run(low);
    rows[1] = Decode::run(hn::ShiftRight<16>(low));
    rows[2] = Decode::run(high);
    rows[3] = Decode::run(hn::ShiftRight<16>(high));
    rows[4] = Decode::run(hn::ShiftRight<8>(low));
    rows[5] = Decode::run(hn::ShiftRight<24>(low));
    rows[6] = Decode::run(hn::ShiftRight<8>(high));
    rows[7] = Decode::run(hn::ShiftRight<24>(high));
  }
};

struct DecodeI8 {
  static F32Vector run(U32Vector bytes) {
    const hn::RebindToSigned<U32Tag> i32;
    return hn::ConvertTo(F32Tag(), hn::ShiftRight<24>(hn::BitCast(i32, hn::ShiftLeft<24>(bytes))));
  }
};

// 4-bit codes that stand for the sixteen numbers of a table: an i8 for each nibble, in the order of the bytes above.
class TableNumbers {
 public:
  static constexpr int kBits = 4;
  static constexpr int kColumnBytes = 4;

  explicit TableNumbers(const signed char (&values)[16]) : values_(values) {}

  void load(const std::byte* source, std::int64_t, U32Vector, F32Vector (&rows)[8]) const {
    const U32Vector words = load_words(source);
    ByteNumbers<DecodeI8>::spread(low(words), high(words), rows);
  }
  U32Vector low(U32Vector words) const { return look_up(bits_at<0>(words, 0x0f0f0f0fu)); }
  U32Vector high(U32Vector words) const { return look_up(bits_at<4>(words, 0x0f0f0f0fu)); }

 private:
  U32Vector look_up(U32Vector codes) const {
    const hn::Repartition<std::uint8_t, U32Tag> u8;
    const auto table = hn::LoadDup128(u8, reinterpret_cast<const std::uint8_t*>(values_));
    return hn::BitCast(U32Tag(), hn::TableLookupBytes(table, hn::BitCast(u8, codes)));
  }

  const signed char (&values_)[16];
};

template <SmallFloat kFormat> struct DecodeFp8 {
  static F32Vector run(U32Vector bytes) {
    return decode_small_float<kFormat>(hn::And(bytes, hn::Set(U32Tag(), 0xffu)));
  }
};

// Pairs of 16 bits, (k, k + 1) in a lane.
template <typename Decode> struct PairNumbers {
  static constexpr int kBits = 16;
  static constexpr int kColumnBytes = 4;
  static void load(const std::byte* source, std::int64_t width, U32Vector, F32Vector (&rows)[8]) {
    for (int pair = 0; pair < 4; ++pair) {
      const U32Vector words = load_words(source + 4 * pair * width);
      rows[2 * pair] = Decode::run(words);
      rows[2 * pair + 1] = Decode::run(hn::ShiftRight<16>(words));
    }
  }
};
// The same in quads of four k per column.
template <typename Decode> struct QuadNumbers {
  static constexpr int kBits = 16;
  static constexpr int kColumnBytes = 8;
  static void load(const std::byte* source, std::int64_t width, U32Vector, F32Vector (&rows)[8]) {
    for (int k = 0; k < 8; ++k) {
      alignas(64) std::uint32_t words[kF32Lanes];
      for (int lane = 0; lane < kF32Lanes; ++lane) {
        std::uint16_t code;
        __builtin_memcpy(&code, source + 2 * (k / 4 * 4 * width + 4 * lane + k % 4), sizeof(code));
        words[lane] = code;
      }
      rows[k] = Decode::run(hn::LoadU(U32Tag(), words));
    }
  }
};

struct DecodeBf16 {
  static F32Vector run(U32Vector words) { return hn::BitCast(F32Tag(), hn::ShiftLeft<16>(words)); }
};
struct DecodeF16 {
  static F32Vector run(U32Vector words) {
    return decode_small_float<kF16>(hn::And(words, hn::Set(U32Tag(), 0xffffu)));
  }
};

// Whether the weight's 4-bit codes are looked up.
inline bool has_table(const WeightView& w) {
  return w.block != nullptr && w.block->has_table;
}

// function(numbers) with the reader of the weight's numbers; not for f32.
template <typename Function> inline void on_numbers(const WeightView& w, Function&& function) {
  const bool is_quad = w.packed.packing == WeightPacking::quads_8;
  switch (w.codes) {
    case Codes::f16:
      return is_quad ? function(QuadNumbers<DecodeF16>{}) : function(PairNumbers<DecodeF16>{});
    case Codes::f32:
    case Codes::bf16:
      return is_quad ? function(QuadNumbers<DecodeBf16>{}) : function(PairNumbers<DecodeBf16>{});
    case Codes::fp8_e4m3:
      return function(ByteNumbers<DecodeFp8<kE4M3>>{});
    case Codes::fp8_e5m2:
      return function(ByteNumbers<DecodeFp8<kE5M2>>{});
    case Codes::blocks_32:
      if (has_table(w)) return function(TableNumbers(w.block->values));
      return w.packed.bits == 8 ? function(ByteNumbers<DecodeI8>{}) : function(NibbleNumbers{});
    case Codes::q5_k:
    case Codes::q6_k:
      return function(ByteNumbers<DecodeI8>{});
    default:
      return function(NibbleNumbers{});
  }
}

// Whether codes without zero points of their own are 8 at zero.
inline bool has_middle_zero(const WeightView& w) {
  return w.block == nullptr || w.block->zero != 0;
}

// A vector of scales or mins.
template <DType kType> inline F32Vector load_factors(const std::byte* source) {
#if defined(__F16C__) || defined(__aarch64__)  // have an instruction for it
  if constexpr (kType == DType::f16) {
    return hn::PromoteTo(F32Tag(), load_anywhere(hn::Rebind<hwy::float16_t, F32Tag>(), source));
  }
#endif
  return load_as_f32<kType>(source);
}

// Scales, zeros and mins of one panel.
class PackedScales {
 public:
  PackedScales(const WeightView& w, std::int64_t panel)
      : layout_(w.packed), base_(w.data), first_(panel * w.packed.groups * w.packed.width) {}

  // Groups [group, group + count) of the panel's columns: [count][width], rows `stride` apart; ones where the weight
  // has no scales.
  void load(std::int64_t group, std::int64_t count, float* scales, std::int64_t stride) const {
    if (layout_.group != 0) {
      return load_rows(layout_.scale_dtype, layout_.scale_offset, group, count, scales, stride);
    }
    for (std::int64_t g = 0; g < count; ++g) {
      for (int i = 0; i < layout_.width; ++i) scales[g * stride + i] = 1.0f;
    }
  }
  // Of a weight that has mins.
  void load_mins(std::int64_t group, std::int64_t count, float* mins, std::int64_t stride) const {
    load_rows(layout_.min_dtype, layout_.min_offset, group, count, mins, stride);
  }
  // The same of the vector of columns that starts at `column`, for all groups: [groups][lanes].
  void load_column(std::int64_t column, float* scales) const {
    load_column(layout_.scale_dtype, layout_.scale_offset, column, scales);
  }
  void load_column_mins(std::int64_t column, float* mins) const {
    load_column(layout_.min_dtype, layout_.min_offset, column, mins);
  }
  // Scales of the vector of columns that starts at `column`: ones where the weight has none.
  F32Vector scale(std::int64_t group, std::int64_t column) const {
    if (layout_.group == 0) return hn::Set(F32Tag(), 1.0f);
    return load_one(layout_.scale_dtype, layout_.scale_offset, group, column);
  }
  // Its mins: zeros where the weight has none.
  F32Vector min(std::int64_t group, std::int64_t column) const {
    if (!layout_.has_mins) return hn::Zero(F32Tag());
    return load_one(layout_.min_dtype, layout_.min_offset, group, column);
  }
  // Zero points of the vector of columns that starts at `column`.
  U32Vector zeros(std::int64_t group, std::int64_t column, bool is_middle) const {
    if (!layout_.has_zeros) return hn::Set(U32Tag(), is_middle ? 8u : 0u);
    const std::byte* at = base_ + layout_.zero_offset + first_ + group * layout_.width + column;
    return widen_codes<std::uint8_t>(at);
  }

 private:
  F32Vector load_one(DType dtype, std::int64_t offset, std::int64_t group,
                     std::int64_t column) const {
    const std::int64_t at = first_ + group * layout_.width + column;
    F32Vector factors = hn::Zero(F32Tag());
    on_type(dtype, [&](auto tag) {
      constexpr DType kType = decltype(tag)::kValue;
      factors = load_factors<kType>(base_ + offset + bytes_for(kType, at));
    });
    return factors;
  }
  // A panel is whole vectors wide.
  void load_rows(DType dtype, std::int64_t offset, std::int64_t group, std::int64_t count,
                 float* out, std::int64_t stride) const {
    on_type(dtype, [&](auto tag) {
      constexpr DType kType = decltype(tag)::kValue;
      const std::byte* from = base_ + offset + bytes_for(kType, first_ + group * layout_.width);
      for (std::int64_t g = 0; g < count; ++g, out += stride) {
        for (int i = 0; i < layout_.width; i += kF32Lanes, from += bytes_for(kType, kF32Lanes)) {
          hn::StoreU(load_factors<kType>(from), F32Tag(), out + i);
        }
      }
    });
  }
  void load_column(DType dtype, std::int64_t offset, std::int64_t column, float* out) const {
    on_type(dtype, [&](auto tag) {
      constexpr DType kType = decltype(tag)::kValue;
      const std::byte* from = base_ + offset + bytes_for(kType, first_ + column);
      const std::int64_t step = bytes_for(kType, layout_.width);
      for (std::int64_t group = 0; group < layout_.groups; ++group, from += step) {
        hn::StoreU(load_factors<kType>(from), F32Tag(), out + group * kF32Lanes);
      }
    });
  }

  const PackedLayout& layout_;
  const std::byte* base_;
  std::int64_t first_;
};

}  // namespace quire::cpu::QUIRE_CPU_TARGET
