// SPDX-License-Identifier: Apache-2.0
#include "reference/tensor_row.h"

#include <cstddef>

namespace quire::reference {

std::vector<double> load_row(const TensorView& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.shape[0]));
  for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
    values[static_cast<std::size_t>(i)] = tensor.load({i});
  }
  return values;
}

std::vector<double> load_row(const TensorView& tensor, std::int64_t row) {
  std::vector<double> values(static_cast<std::size_t>(tensor.shape[1]));
  for (std::int64_t i = 0; i < tensor.shape[1]; ++i) {
    values[static_cast<std::size_t>(i)] = tensor.load({row, i});
  }
  return values;
}

std::vector<double> load_row(const TensorView& tensor, std::int64_t outer, std::int64_t row) {
  std::vector<double> values(static_cast<std::size_t>(tensor.shape[2]));
  for (std::int64_t i = 0; i < tensor.shape[2]; ++i) {
    values[static_cast<std::size_t>(i)] = tensor.load({outer, row, i});
  }
  return values;
}

}  // namespace quire::reference
