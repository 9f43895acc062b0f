// SPDX-License-Identifier: Apache-2.0
// Which rows can be read and written in vectors.
#pragma once

#include "cuda/any/store/params.h"

namespace quire::cuda::any::store {

inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorColumns = 8;

inline bool is_multiple(std::int64_t value, std::int64_t of) {
  return value % of == 0;
}

inline bool is_aligned(const void* address, std::int64_t to) {
  return is_multiple(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address)), to);
}

inline bool rows_are_aligned(const StoreParams& params, std::int64_t x_to, std::int64_t row_to) {
  const KvLayerView& view = params.view;
  return is_aligned(params.x, x_to) && is_multiple(params.token_stride_bytes, x_to) &&
         is_multiple(params.head_stride_bytes, x_to) && is_aligned(view.data, row_to) &&
         is_multiple(view.page_stride_bytes, row_to) &&
         is_multiple(view.token_stride_bytes, row_to) &&
         is_multiple(view.head_stride_bytes, row_to);
}

// That of the first part that has one; f32 where none has.
inline DType eight_bit_type(const RowFormat& format) {
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const DType dtype = format.parts[static_cast<std::size_t>(p)].dtype;
    if (bits(dtype) == 8) return dtype;
  }
  return DType::f32;
}

inline bool parts_are_aligned(const RowFormat& format) {
  for (std::int32_t p = 0; p < format.num_parts; ++p) {
    const RowPart& part = format.parts[static_cast<std::size_t>(p)];
    const std::int64_t alignment = bits(part.dtype) == 8 ? 8 : kVectorBytes;
    if (!is_multiple(part.width, kVectorColumns)) return false;
    if (!is_multiple(part.offset_bytes, alignment)) return false;
    const bool has_own_scales = part.scale_source == ScaleSource::in_row;
    const std::int64_t scale_bytes = bits(part.scale_dtype) / 8;
    if (has_own_scales && !is_multiple(part.scale_offset_bytes, scale_bytes)) return false;
    if (bits(part.dtype) == 8 && part.dtype != eight_bit_type(format)) return false;
  }
  return true;
}

}  // namespace quire::cuda::any::store
