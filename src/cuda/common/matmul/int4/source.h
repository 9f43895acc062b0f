// SPDX-License-Identifier: Apache-2.0
// An int4, gptq or awq weight as it lies in memory, one number at a time: what packing reads.
#pragma once

#include <cstddef>

#include "quire/host_device.h"
#include "quire/weight.h"

namespace quire::cuda {

struct Int4Source {
  WeightFormat format = WeightFormat::int4;
  const std::byte* data = nullptr;
  std::int64_t row_stride_bytes = 0;  // of the stored tensor's first axis
  int rows = 0;                       // of W
  int columns = 0;
  int group_size = 128;
  const std::byte* scale = nullptr;
  int scale_bytes = 2;
  std::int64_t scale_row_stride = 0;  // elements, from one row of W to the next
  std::int64_t scale_group_stride = 0;
  const std::byte* zeros = nullptr;  // int4: u8; gptq, awq: words of eight rows; null: all 8
  std::int64_t zero_row_stride = 0;  // elements
  std::int64_t zero_group_stride = 0;

  QUIRE_HOST_DEVICE unsigned code(int row, int column) const {
    if (format == WeightFormat::int4) {
      const auto byte = static_cast<unsigned>(data[row * row_stride_bytes + column / 2]);
      return byte >> (column % 2 * 4) & 15u;
    }
    if (format == WeightFormat::awq) {
      return word(data + column * row_stride_bytes, row / 8) >> (4 * awq_nibble(row)) & 15u;
    }
    return word(data + column / 8 * row_stride_bytes, row) >> (column % 8 * 4) & 15u;
  }
  QUIRE_HOST_DEVICE unsigned zero(int row, int group) const {
    constexpr unsigned kMiddleCode = 8;
    if (zeros == nullptr) return kMiddleCode;
    if (format == WeightFormat::int4) {
      return static_cast<unsigned>(zeros[row * zero_row_stride + group * zero_group_stride]);
    }
    const unsigned both = word(zeros, row / 8 * zero_row_stride + group * zero_group_stride);
    if (format == WeightFormat::awq) return both >> (4 * awq_nibble(row)) & 15u;
    return (both >> (row % 8 * 4) & 15u) + (format == WeightFormat::gptq ? 1 : 0);
  }
  // The scale's bytes, whatever they mean.
  QUIRE_HOST_DEVICE void copy_scale(int row, int group, std::byte* to) const {
    const std::int64_t index = row * scale_row_stride + group * scale_group_stride;
    for (int i = 0; i < scale_bytes; ++i) to[i] = scale[index * scale_bytes + i];
  }

 private:
  // AWQ interleaves: of eight rows, nibble 0 is row 0, nibble 1 is row 2, …
  QUIRE_HOST_DEVICE static int awq_nibble(int row) { return row % 8 / 2 + row % 2 * 4; }
  QUIRE_HOST_DEVICE static unsigned word(const std::byte* from, std::int64_t index) {
    return reinterpret_cast<const std::uint32_t*>(from)[index];
  }
};

}  // namespace quire::cuda
