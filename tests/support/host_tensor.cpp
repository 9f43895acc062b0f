// SPDX-License-Identifier: Apache-2.0
#include "support/host_tensor.h"

#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "quire/element.h"

namespace quire::test {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

HostTensor::HostTensor(DType dtype, std::vector<std::int64_t> shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      bytes_(static_cast<std::size_t>(bytes_for(dtype, product(shape_))), std::byte{0xff}) {}

HostTensor HostTensor::of(DType dtype, std::vector<std::int64_t> shape,
                          const std::vector<double>& values) {
  HostTensor tensor(dtype, std::move(shape));
  if (product(tensor.shape_) != static_cast<std::int64_t>(values.size())) {
    throw std::invalid_argument("HostTensor::of: the number of values does not fit the shape");
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_element(tensor.bytes_.data(), dtype, static_cast<std::int64_t>(i), values[i]);
  }
  return tensor;
}

HostTensor HostTensor::filled(DType dtype, std::vector<std::int64_t> shape, double value) {
  const auto count = static_cast<std::size_t>(product(shape));
  return of(dtype, std::move(shape), std::vector<double>(count, value));
}

HostTensor HostTensor::random(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed,
                              double amplitude) {
  std::vector<double> values(static_cast<std::size_t>(product(shape)));
  for (double& value : values) value = amplitude * next_uniform(seed);
  return of(dtype, std::move(shape), values);
}

TensorView HostTensor::view() const {
  return TensorView::contiguous(bytes_.data(), dtype_, shape_);
}

TensorView column(TensorView matrix, std::int64_t index) {
  matrix.data = matrix.as<std::byte>() + bytes_for(matrix.dtype, index * matrix.strides[1]);
  matrix.rank = 1;
  return matrix;
}

std::vector<double> HostTensor::values() const {
  std::vector<double> values(static_cast<std::size_t>(product(shape_)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(bytes_.data(), dtype_, static_cast<std::int64_t>(i));
  }
  return values;
}

double next_uniform(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15ull;
  std::uint64_t word = state;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  word ^= word >> 31;
  return static_cast<double>(word >> 11) * 0x1p-52 - 1.0;
}

}  // namespace quire::test
