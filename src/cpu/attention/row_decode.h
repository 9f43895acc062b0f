// SPDX-License-Identifier: Apache-2.0
// Cache rows of any format as rows of an engine's elements: stored numbers times their scales (u4: and
// their zeros added), in f32, rounded once; or as f32 numbers that are to be rounded to 16 bits.
#pragma once

#include "cpu/attention/decode_e4m3.h"
#include "cpu/attention/item.h"
#include "cpu/simd/convert_row.h"
#include "cpu/simd/rows_product.h"

namespace quire::cpu::QUIRE_CPU_TARGET {

template <typename Element> inline constexpr DType kElementType = DType::f32;
template <> inline constexpr DType kElementType<std::uint16_t> = DType::bf16;

HWY_INLINE void store_element_vector(F32Vector value, float* target) {
  hn::StoreU(value, F32Tag(), target);
}
HWY_INLINE void store_element_vector(F32Vector value, std::uint16_t* target) {
#if defined(__AVX512BF16__)  // Highway 1.0.3 has no such conversion
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value.raw)));
#else
  store_from_f32<DType::bf16>(value, target);
#endif
}

// One unscaled run of `dtype`: where that is what is wanted, the row can be used where it stands.
inline bool is_plain(const RowPlan& plan, DType dtype) {
  return plan.num_runs == 1 && plan.runs[0].granule < 0 && plan.runs[0].dtype == dtype;
}

// value = number · scale + zero
struct RunScaling {
  float scale = 1.0f;
  float zero = 0.0f;
};

inline RunScaling scaling_of(const RowPlan& plan, const RowRun& run, const RowAddress& address) {
  if (run.granule < 0) return {};
  const RowGranule& granule = plan.granules[run.granule];
  const std::byte* base = granule.source == GranuleScale::in_row ? address.row : address.plane;
  if (base == nullptr) return {.scale = 0.0f};
  base += granule.scale_offset;
  RunScaling scaling{.scale = widen_one(granule.scale_dtype, base)};
  if (granule.has_zeros) {
    scaling.zero = widen_one(granule.scale_dtype, base + bytes_for(granule.scale_dtype, 1));
  }
  return scaling;
}

template <DType kType, typename Product, typename Element>
inline void multiply_run(const std::byte* codes, std::int64_t count, const Product& product,
                         Element* out) {
  std::int64_t i = 0;
  for (; i + kF32Lanes <= count; i += kF32Lanes) {
    store_element_vector(product(load_as_f32<kType>(codes + bytes_of<kType>(i))), out + i);
  }
  if (i == count) return;
  alignas(64) std::byte part[bytes_of<kType>(kF32Lanes)] = {};
  alignas(64) Element tail[kF32Lanes];
  __builtin_memcpy(part, codes + bytes_of<kType>(i),
                   static_cast<std::size_t>(bytes_of<kType>(count - i)));
  store_element_vector(product(load_as_f32<kType>(part)), tail);
  __builtin_memcpy(out + i, tail, static_cast<std::size_t>(count - i) * sizeof(Element));
}

template <DType kType, typename Element>
inline void decode_run(const std::byte* codes, std::int64_t count, RunScaling by, Element* out) {
  if constexpr (kType == DType::fp8_e4m3 && kElementType<Element> == DType::bf16) {
    if (by.scale == 1.0f) return decode_e4m3(codes, count, out);
  }
  if constexpr (kType == DType::u4) {
    return multiply_run<kType>(codes, count, ShiftedProduct(by.scale, by.zero), out);
  }
  multiply_run<kType>(codes, count, NearestProduct(by.scale), out);
}

template <DType kType>
inline void decode_run_to_odd(const std::byte* codes, std::int64_t count, RunScaling by,
                              float* out) {
  if constexpr (kType == DType::u4) {
    multiply_run<kType>(codes, count, WideShiftedProduct(by.scale, by.zero), out);
  } else if (FusedProduct::takes(by.scale)) {
    multiply_run<kType>(codes, count, FusedProduct(by.scale), out);
  } else {
    multiply_run<kType>(codes, count, WideProduct(by.scale), out);
  }
}

// decode(type, codes, count, scaling, column) for the runs of the first `width` columns of a row that has
// a page.
template <typename Decode>
inline void over_runs(const RowPlan& plan, const RowAddress& address, std::int64_t width,
                      const Decode& decode) {
  for (std::int32_t r = 0; r < plan.num_runs && plan.runs[r].column < width; ++r) {
    const RowRun& run = plan.runs[r];
    const std::int64_t left = width - run.column;
    const std::int64_t count = run.count < left ? run.count : left;
    const RunScaling scaling = scaling_of(plan, run, address);
    on_type(run.dtype, [&](auto type) {
      decode(type, address.row + run.offset_bytes, count, scaling, run.column);
    });
  }
}

template <typename Element>
inline void decode_row(const RowPlan& plan, const RowAddress& address, std::int64_t width,
                       Element* out) {
  over_runs(plan, address, width,
            [&](auto type, const std::byte* codes, std::int64_t count, RunScaling by, auto column) {
              decode_run<decltype(type)::kValue>(codes, count, by, out + column);
            });
}

// To be rounded to 16 bits.
inline void decode_row_to_odd(const RowPlan& plan, const RowAddress& address, std::int64_t width,
                              float* out) {
  over_runs(plan, address, width,
            [&](auto type, const std::byte* codes, std::int64_t count, RunScaling by, auto column) {
              decode_run_to_odd<decltype(type)::kValue>(codes, count, by, out + column);
            });
}

// Values of any dtype as elements: where they stand, or in `out` if they are stored otherwise.
template <typename Element>
inline const Element* as_elements(DType dtype, const std::byte* values, std::int64_t count,
                                  Element* out) {
  if (dtype == kElementType<Element>) return reinterpret_cast<const Element*>(values);
  on_type(dtype, [&](auto tag) { decode_run<decltype(tag)::kValue>(values, count, {}, out); });
  return out;
}

// One unscaled run of e4m3 for bf16 tiles: all rows in one loop, whose constants stay in registers.
template <typename Element>
inline bool decode_e4m3_rows(const RowPlan& plan, const RowAddress* addresses, int count,
                             std::int64_t width, Element* buffer, const Element** rows) {
  if constexpr (kElementType<Element> == DType::bf16) {
    const bool is_whole = is_plain(plan, DType::fp8_e4m3) && plan.runs[0].count >= width;
    for (int i = 0; i < count && is_whole; ++i) {
      rows[i] = nullptr;
      if (addresses[i].row == nullptr) continue;
      rows[i] = buffer + i * width;
      decode_e4m3(addresses[i].row + plan.runs[0].offset_bytes, width, buffer + i * width);
    }
    return is_whole;
  }
  return false;
}

// rows [count]: the elements of each address, decoded into `buffer` [count, width] where the row
// is not stored as the engine wants it; null for keys that do not exist.
template <typename Element>
inline void load_rows(const RowPlan& plan, const RowAddress* addresses, int count,
                      std::int64_t width, Element* buffer, const Element** rows) {
  if (decode_e4m3_rows(plan, addresses, count, width, buffer, rows)) return;
  const bool is_direct = is_plain(plan, kElementType<Element>);
  for (int i = 0; i < count; ++i) {
    const RowAddress& address = addresses[i];
    if (address.row == nullptr) {
      rows[i] = nullptr;
    } else if (is_direct) {
      rows[i] = reinterpret_cast<const Element*>(address.row + plan.runs[0].offset_bytes);
    } else {
      Element* out = buffer + i * width;
      decode_row(plan, address, width, out);
      rows[i] = out;
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_TARGET
