// SPDX-License-Identifier: Apache-2.0
// A tensor that owns its memory, for tests. Fresh memory is 0xff bytes: NaN in every float type.
//
//   HostTensor x = HostTensor::of(DType::bf16, {2, 3}, {1, 2, 3, 4, 5, 6});
//   HostTensor out(DType::f32, {2, 3});
//   op({.x = x.view(), .out = out.view()});
//   EXPECT_EQ(out.values(), x.values());
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quire/tensor_view.h"

namespace quire::test {

class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, std::vector<std::int64_t> shape);
  // Row-major values, rounded to the dtype.
  static HostTensor of(DType dtype, std::vector<std::int64_t> shape,
                       const std::vector<double>& values);
  static HostTensor filled(DType dtype, std::vector<std::int64_t> shape, double value);
  // Uniform in [-amplitude, amplitude], the same on every machine.
  static HostTensor random(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed,
                           double amplitude = 1.0);

  TensorView view() const;
  std::vector<double> values() const;
  double at(std::initializer_list<std::int64_t> index) const { return view().load(index); }
  std::vector<std::byte>& bytes() { return bytes_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  DType dtype_ = DType::f32;
  std::vector<std::int64_t> shape_{};
  // Views hand out mutable memory, as TensorView does everywhere.
  mutable std::vector<std::byte> bytes_{};
};

// A column of a matrix, such as the two of key intervals [tokens, 2].
TensorView column(TensorView matrix, std::int64_t index);

// The next number in [-1, 1) of a small generator (splitmix64), which `state` carries on.
double next_uniform(std::uint64_t& state);

}  // namespace quire::test
