// SPDX-License-Identifier: Apache-2.0
// Slices of a weight row, for the engines: either the bare numbers in bf16, where every one of them
// is exact there (fp8, code − zero, i8) and the scale is left to the sums, or the values in f32.
#pragma once

#include "cpu/fused_qkv_matmul/job.h"
#include "cpu/simd/convert_bf16.h"
#include "cpu/simd/convert_row.h"
#include "cpu/simd/decode_blocks.h"
#include "cpu/simd/decode_k_quants.h"

#if defined(__AVX512BW__)
#include "cpu/simd/decode_avx512.h"
#endif

namespace quire::cpu::QUIRE_CPU_TARGET {

inline constexpr std::int64_t kDecodeChunk = 256;

inline std::uint32_t load_word(const std::byte* base, std::int64_t index) {
  std::uint32_t word;
  __builtin_memcpy(&word, base + 4 * index, sizeof(word));
  return word;
}

// Which nibble of an AWQ word holds a column: nibble 0 is column 0, nibble 1 column 2, …
inline int awq_shift(std::int64_t column) {
  const int place = static_cast<int>(column % 8);
  return 4 * (place % 2 == 0 ? place / 2 : 4 + place / 2);
}

// The GGUF block that holds (n, k).
inline const std::byte* block_at(const WeightView& w, std::int64_t n, std::int64_t k) {
  return w.data + n * w.row_stride + k / w.block->columns * w.block->bytes;
}

inline float scale_at(const WeightView& w, std::int64_t n, std::int64_t k) {
  if (w.codes == Codes::blocks_32) return block_scale(*w.block, block_at(w, n, k));
  if (w.scale == nullptr) return 1.0f;
  const std::int64_t index = n / w.scale_rows * w.scale_n_stride + k / w.group * w.scale_k_stride;
  return widen_one(w.scale_dtype, w.scale + bytes_for(w.scale_dtype, index));
}

// Of weights with mins.
inline float min_at(const WeightView& w, std::int64_t n, std::int64_t k) {
  const std::byte* block = block_at(w, n, k);
  if (w.codes == Codes::blocks_32) return block_min(*w.block, block);
  return k_group_factors(block, k % w.block->columns / w.block->group).min;
}

inline int zero_at(const WeightView& w, std::int64_t n, std::int64_t k) {
  constexpr int kMiddleCode = 8;
  if (w.zeros == nullptr) return kMiddleCode;
  const std::int64_t group = k / w.group;
  if (w.codes == Codes::int4) {
    return static_cast<int>(w.zeros[n * w.zero_n_stride + group * w.zero_k_stride]);
  }
  const std::uint32_t word = load_word(w.zeros, group * w.zero_k_stride + n / 8 * w.zero_n_stride);
  const int shift = w.codes == Codes::awq ? awq_shift(n) : static_cast<int>(4 * (n % 8));
  return static_cast<int>((word >> shift) & 15u) + w.zero_offset;
}

// function(read) for a row of 4-bit codes in groups, read(k) being the code of column k.
template <typename Function>
inline void with_codes(const WeightView& w, std::int64_t n, Function&& function) {
  const std::byte* row = w.data + n * w.row_stride;
  if (w.codes == Codes::gptq) {
    function([&w, n](std::int64_t k) {
      return (load_word(w.data + k / 8 * w.row_stride, n) >> (4 * (k % 8))) & 15u;
    });
  } else if (w.codes == Codes::awq) {
    function([&w, n, shift = awq_shift(n)](std::int64_t k) {
      return (load_word(w.data + k * w.row_stride, n / 8) >> shift) & 15u;
    });
  } else {
    function([row](std::int64_t k) {
      return (static_cast<unsigned>(row[k / 2]) >> (4 * (k % 2))) & 15u;
    });
  }
}

inline bool is_grouped(Codes codes) {
  return codes == Codes::int4 || codes == Codes::gptq || codes == Codes::awq;
}

#if defined(__AVX512BW__)
// As many of the numbers as whole registers take; returns how many. k is a multiple of 32.
inline std::int64_t decode_registers(const WeightView& w, std::int64_t n, std::int64_t k,
                                     std::int64_t count, std::uint16_t* out) {
  const std::byte* row = w.data + n * w.row_stride;
  const auto each = [&](auto&& decode) {
    const std::int64_t whole = count / 32 * 32;
    for (std::int64_t i = 0; i < whole; i += 32) _mm512_storeu_si512(out + i, decode(k + i));
    return whole;
  };
  switch (w.codes) {
    case Codes::fp8_e4m3:
      return each([row](std::int64_t column) { return decode_32_e4m3(row + column); });
    case Codes::int4: {
      const __m512i values = code_values(zero_at(w, n, k));
      return each([row, values](std::int64_t column) {
        const auto* bytes = reinterpret_cast<const __m128i*>(row + column / 2);
        return decode_32_nibbles(_mm_loadu_si128(bytes), values);
      });
    }
    case Codes::gptq: {
      const __m512i values = code_values(zero_at(w, n, k));
      return each([&w, n, values](std::int64_t column) {
        const std::byte* words = w.data + column / 8 * w.row_stride + 4 * n;
        return decode_32_nibbles(gather_four_words(words, w.row_stride), values);
      });
    }
    case Codes::awq: {
      const __m512i values = code_values(zero_at(w, n, k));
      return each([&w, n, values](std::int64_t column) {
        const std::byte* words = w.data + column * w.row_stride + n / 8 * 4;
        return decode_32_words(words, w.row_stride, awq_shift(n), values);
      });
    }
    case Codes::blocks_32: {
      const BlockFormat& format = *w.block;
      if (format.code_bits == 8) {
        return each([&](std::int64_t column) {
          return decode_32_i8(block_at(w, n, column) + format.codes_at);
        });
      }
      const __m512i values =
          format.code_bits == 4 ? table_values(format.values) : five_bit_values(format.zero);
      return each([&](std::int64_t column) {
        const std::byte* block = block_at(w, n, column);
        return decode_32_split_codes(block + format.codes_at, block_high_bits(format, block),
                                     values);
      });
    }
    default:
      return 0;
  }
}
#endif

// Numbers of columns [k, k + count), all of one group, without their scale.
inline void decode_numbers(const WeightView& w, std::int64_t n, std::int64_t k, std::int64_t count,
                           std::uint16_t* out) {
#if defined(__AVX512BW__)
  const std::int64_t done = decode_registers(w, n, k, count, out);
  if (done == count) return;
  k += done;
  count -= done;
  out += done;
#endif
  const std::byte* row = w.data + n * w.row_stride;
  if (w.codes == Codes::blocks_32) {  // whole ones: K, the depth block and the group are
    for (std::int64_t i = 0; i < count; i += 32)
      decode_block(*w.block, block_at(w, n, k + i), out + i);
  } else if (is_grouped(w.codes)) {
    const int zero = zero_at(w, n, k);
    std::uint16_t values[16];
    for (int code = 0; code < 16; ++code) {
      values[code] = bf16_from_f32(static_cast<float>(code - zero));
    }
    with_codes(w, n, [&](auto read) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = values[read(k + i)];
    });
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = w.to_bf16[static_cast<std::uint8_t>(row[k + i])];
    }
  }
}

// Values of columns [k, k + count). k is a multiple of 256 for the K-quants, of 32 for the rest.
inline void decode_values(const WeightView& w, std::int64_t n, std::int64_t k, std::int64_t count,
                          float* out) {
  const std::byte* row = w.data + n * w.row_stride;
  switch (w.codes) {
    case Codes::f32:
      return widen_row<DType::f32>(row + 4 * k, count, out);
    case Codes::f16:
      return widen_row<DType::f16>(row + 2 * k, count, out);
    case Codes::bf16:
      return widen_row<DType::bf16>(row + 2 * k, count, out);
    case Codes::q4_k:
      for (std::int64_t i = 0; i < count; i += 256) decode_q4_k(block_at(w, n, k + i), out + i);
      return;
    case Codes::q5_k:
      for (std::int64_t i = 0; i < count; i += 256) decode_q5_k(block_at(w, n, k + i), out + i);
      return;
    case Codes::q6_k:
      for (std::int64_t i = 0; i < count; i += 256) decode_q6_k(block_at(w, n, k + i), out + i);
      return;
    default:
      break;
  }
  // Numbers times scales (plus mins), group by group.
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t in_group = w.group - (k + i) % w.group;
    const std::int64_t part = in_group < count - i ? in_group : count - i;
    const float scale = scale_at(w, n, k + i);
    const bool has_mins = w.has_mins();
    const float min = has_mins ? min_at(w, n, k + i) : 0.0f;
    std::uint16_t numbers[kDecodeChunk];
    for (std::int64_t j = 0; j < part; j += kDecodeChunk) {
      const std::int64_t length = part - j < kDecodeChunk ? part - j : kDecodeChunk;
      decode_numbers(w, n, k + i + j, length, numbers);
      for (std::int64_t l = 0; l < length; ++l) {
        out[i + j + l] = f32_from_bf16(numbers[l]) * scale;
      }
      for (std::int64_t l = 0; has_mins && l < length; ++l) out[i + j + l] += min;
    }
    i += part;
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
