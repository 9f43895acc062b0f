// SPDX-License-Identifier: Apache-2.0
// A tensor that owns its memory, and the float matrices between the ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "quire/tensor_view.h"
#include "tools/demo/site.h"

namespace quire::tools::demo {

// Tensors made while it lives are at `site`; otherwise on the host. One thread's matter.
class TensorsLiveAt {
 public:
  explicit TensorsLiveAt(Site& site);
  ~TensorsLiveAt();
  TensorsLiveAt(const TensorsLiveAt&) = delete;
  TensorsLiveAt& operator=(const TensorsLiveAt&) = delete;

 private:
  Site* before_;
};

struct ReleaseBytes {
  std::pmr::memory_resource* memory = nullptr;
  std::size_t size = 0;
  void operator()(std::byte* bytes) const { memory->deallocate(bytes, size); }
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, std::vector<std::int64_t> shape);  // zeros
  // The same elements, row-major.
  static Tensor copy_of(const TensorView& view);
  static Tensor of(std::span<const std::uint32_t> values);  // u32 [size]
  // Bell-shaped around `mean`, the same on every machine.
  static Tensor random(DType dtype, std::vector<std::int64_t> shape, std::string_view name,
                       std::uint64_t seed, double amplitude, double mean = 0.0);

  TensorView view() const;
  TensorView view(std::initializer_list<std::int64_t> shape) const;  // the same elements, reshaped
  std::span<std::byte> bytes() { return {bytes_.get(), bytes_.get_deleter().size}; }

 private:
  DType dtype_ = DType::f32;
  std::vector<std::int64_t> shape_{};
  std::unique_ptr<std::byte[], ReleaseBytes> bytes_;
  Device device_{};
};

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values{};  // row-major

  Matrix() = default;
  Matrix(std::int64_t num_rows, std::int64_t num_columns)
      : rows(num_rows),
        columns(num_columns),
        values(static_cast<std::size_t>(num_rows * num_columns)) {}

  std::span<float> row(std::int64_t index) {
    return std::span(values).subspan(static_cast<std::size_t>(index * columns),
                                     static_cast<std::size_t>(columns));
  }
  std::span<const float> row(std::int64_t index) const {
    return std::span(values).subspan(static_cast<std::size_t>(index * columns),
                                     static_cast<std::size_t>(columns));
  }

  static Matrix random(std::int64_t rows, std::int64_t columns, std::string_view name,
                       std::uint64_t seed, double amplitude);
};

// Rounds to `dtype`; the shape has as many elements as the matrix.
Tensor to_tensor(const Matrix& matrix, DType dtype, std::vector<std::int64_t> shape);
// [rows, the rest].
Matrix to_matrix(const Tensor& tensor);

// y = x / rms(x), row by row; no weights.
Matrix rms_normalized(const Matrix& x);
// (x - mean) / deviation, row by row.
Matrix layer_normalized(const Matrix& x);
// x [rows, K] · wᵀ, w [N, K].
Matrix project(const Matrix& x, const Matrix& w);
void add_to(Matrix& sum, const Matrix& x);

}  // namespace quire::tools::demo
