// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/tensor.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "quire/element.h"
#include "tools/case/random_stream.h"

namespace quire::tools::demo {
namespace {

constexpr double kEpsilon = 1e-6;

Site*& current_site() {
  thread_local Site* site = &host_site();
  return site;
}

std::int64_t product(std::span<const std::int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// (x - center) / sqrt(mean((x - center)²) + ε).
void normalize(std::span<const float> x, double center, std::span<float> y) {
  double sum = 0.0;
  for (const float value : x) sum += (value - center) * (value - center);
  const double factor = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + kEpsilon);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>((x[i] - center) * factor);
}

}  // namespace

TensorsLiveAt::TensorsLiveAt(Site& site) : before_(current_site()) {
  current_site() = &site;
}

TensorsLiveAt::~TensorsLiveAt() {
  current_site() = before_;
}

Tensor::Tensor(DType dtype, std::vector<std::int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), device_(current_site()->device()) {
  std::pmr::memory_resource& memory = current_site()->memory();
  const auto size = static_cast<std::size_t>(bytes_for(dtype, product(shape_)));
  bytes_ = {static_cast<std::byte*>(memory.allocate(size)), ReleaseBytes{&memory, size}};
  std::memset(bytes_.get(), 0, size);
}

Tensor Tensor::copy_of(const TensorView& view) {
  Tensor tensor(view.dtype, {view.dims().begin(), view.dims().end()});
  if (view.is_contiguous()) {
    if (!tensor.bytes().empty()) {
      std::memcpy(tensor.bytes_.get(), view.data, tensor.bytes().size());
    }
    return tensor;
  }
  // Element by element in row-major order, the last dimension fastest.
  std::array<std::int64_t, kMaxRank> index{};
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    std::int64_t offset = 0;
    for (int dim = 0; dim < view.rank; ++dim) offset += index[dim] * view.strides[dim];
    store_element(tensor.bytes_.get(), view.dtype, i, load_element(view.data, view.dtype, offset));
    for (int dim = view.rank - 1; dim >= 0 && ++index[dim] == view.shape[dim]; --dim) {
      index[dim] = 0;
    }
  }
  return tensor;
}

Tensor Tensor::of(std::span<const std::uint32_t> values) {
  Tensor tensor(DType::u32, {static_cast<std::int64_t>(values.size())});
  if (!values.empty()) std::memcpy(tensor.bytes_.get(), values.data(), values.size_bytes());
  return tensor;
}

Tensor Tensor::random(DType dtype, std::vector<std::int64_t> shape, std::string_view name,
                      std::uint64_t seed, double amplitude, double mean) {
  Tensor tensor(dtype, std::move(shape));
  RandomStream stream(seed, name, dtype, amplitude, mean);
  stream.copy(tensor.bytes_.get(), 0, product(tensor.shape_));
  return tensor;
}

TensorView Tensor::view() const {
  return TensorView::contiguous(bytes_.get(), dtype_, shape_, device_);
}

TensorView Tensor::view(std::initializer_list<std::int64_t> shape) const {
  return TensorView::contiguous(bytes_.get(), dtype_, shape, device_);
}

Matrix Matrix::random(std::int64_t rows, std::int64_t columns, std::string_view name,
                      std::uint64_t seed, double amplitude) {
  return to_matrix(Tensor::random(DType::bf16, {rows, columns}, name, seed, amplitude));
}

Tensor to_tensor(const Matrix& matrix, DType dtype, std::vector<std::int64_t> shape) {
  Tensor tensor(dtype, std::move(shape));
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    store_element(tensor.bytes().data(), dtype, static_cast<std::int64_t>(i), matrix.values[i]);
  }
  return tensor;
}

Matrix to_matrix(const Tensor& tensor) {
  const TensorView view = tensor.view();
  const std::int64_t rows = view.shape[0];
  Matrix matrix(rows, rows == 0 ? 0 : view.numel() / rows);
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    matrix.values[i] =
        static_cast<float>(load_element(view.data, view.dtype, static_cast<std::int64_t>(i)));
  }
  return matrix;
}

Matrix rms_normalized(const Matrix& x) {
  Matrix y(x.rows, x.columns);
  for (std::int64_t row = 0; row < x.rows; ++row) normalize(x.row(row), 0.0, y.row(row));
  return y;
}

Matrix layer_normalized(const Matrix& x) {
  Matrix y(x.rows, x.columns);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const std::span<const float> values = x.row(row);
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    normalize(values, sum / static_cast<double>(x.columns), y.row(row));
  }
  return y;
}

Matrix project(const Matrix& x, const Matrix& w) {
  Matrix y(x.rows, w.rows);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t n = 0; n < w.rows; ++n) {
      const std::span<const float> a = x.row(row);
      const std::span<const float> b = w.row(n);
      y.row(row)[static_cast<std::size_t>(n)] =
          std::inner_product(a.begin(), a.end(), b.begin(), 0.0f);
    }
  }
  return y;
}

void add_to(Matrix& sum, const Matrix& x) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += x.values[i];
}

}  // namespace quire::tools::demo
