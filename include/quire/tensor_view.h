// SPDX-License-Identifier: Apache-2.0
// A strided view of memory somebody else owns. Sizes and strides are 64-bit, strides count
// elements.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "quire/device.h"
#include "quire/dtype.h"
#include "quire/export.h"

namespace quire {

inline constexpr int kMaxRank = 6;

struct QUIRE_API TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};
  Device device{};

  // Row-major, without gaps.
  static TensorView contiguous(void* data, DType dtype, std::span<const std::int64_t> shape,
                               Device device = {});
  static TensorView contiguous(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                               Device device = {}) {
    return contiguous(data, dtype, std::span(shape.begin(), shape.size()), device);
  }

  std::span<const std::int64_t> dims() const {
    return {shape.data(), static_cast<std::size_t>(rank)};
  }
  std::int64_t numel() const;
  bool is_contiguous() const;  // row-major without gaps; dimensions of size 1 may have any stride
  bool has_dense_rows() const {
    return rank > 0 && (shape[rank - 1] <= 1 || strides[rank - 1] == 1);
  }

  template <typename T> T* as() const { return static_cast<T*>(data); }

  // Element offset of an index; `index.size()` must equal the rank.
  std::int64_t offset(std::initializer_list<std::int64_t> index) const {
    std::int64_t sum = 0;
    int dim = 0;
    for (const std::int64_t i : index) sum += i * strides[dim++];
    return sum;
  }
  double load(std::initializer_list<std::int64_t> index) const;
  void store(std::initializer_list<std::int64_t> index, double value) const;

  std::string describe() const;  // "bf16[4096, 6144]"
};

}  // namespace quire
