// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "quire/element.h"
#include "tools/demo/tensor.h"

namespace quire::tools::demo {
namespace {

constexpr double kUnits = 2.0;

// The unit in the last place of 1.0.
double unit_of_one(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::fp8_e4m3:
      return 0x1p-3;
    case DType::fp8_e5m2:
      return 0x1p-2;
    default:
      return 0.0;
  }
}

double root_mean_square(const TensorView& tensor) {
  double sum = 0.0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const double value = load_element(tensor.data, tensor.dtype, i);
    if (!std::isfinite(value)) continue;
    sum += value * value;
    ++count;
  }
  return count == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(count));
}

std::string place(const TensorView& tensor, std::int64_t element) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.rank));
  for (int dim = tensor.rank; dim-- > 0;) {
    index[static_cast<std::size_t>(dim)] = element % tensor.shape[dim];
    element /= tensor.shape[dim];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

}  // namespace

bool is_close(double actual, double expected, DType dtype, double size) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(actual) == std::isnan(expected);
  if (std::isinf(expected) || std::isinf(actual)) return actual == expected;
  const double unit = unit_of_one(dtype) * std::max(std::abs(expected), size);
  return std::abs(actual - expected) <= kUnits * unit;
}

std::optional<std::string> find_difference(std::string_view name, const TensorView& actual,
                                           const TensorView& expected, Closeness closeness) {
  const Tensor dense_actual = Tensor::copy_of(actual);
  const Tensor dense_expected = Tensor::copy_of(expected);
  const TensorView a = dense_actual.view();
  const TensorView e = dense_expected.view();
  const auto num_bytes = static_cast<std::size_t>(bytes_for(a.dtype, a.numel()));
  if (num_bytes == 0 || std::memcmp(a.data, e.data, num_bytes) == 0) return std::nullopt;
  const double size = root_mean_square(e);
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double got = load_element(a.data, a.dtype, i);
    const double wanted = load_element(e.data, e.dtype, i);
    const bool is_same = got == wanted ? std::signbit(got) == std::signbit(wanted)
                                       : std::isnan(got) && std::isnan(wanted);
    if (is_same) continue;
    if (closeness == Closeness::rounding && is_close(got, wanted, a.dtype, size)) continue;
    return fmt::format("{}{} is {:.9g}, the oracle says {:.9g}", name, place(a, i), got, wanted);
  }
  return std::nullopt;  // NaNs of different payload
}

}  // namespace quire::tools::demo
