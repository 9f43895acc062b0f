// SPDX-License-Identifier: Apache-2.0
#include "ops/arena.h"

#include <stdexcept>

#include "quire/element.h"
#include "support/host_tensor.h"

namespace quire::test {

TensorView Arena::poisoned(DType dtype, const Shape& shape) {
  TensorView view = TensorView::contiguous(nullptr, dtype, shape);
  const auto size = static_cast<std::size_t>(bytes_for(dtype, view.numel()));
  view.data = buffers_.emplace_back(size, std::byte{0xff}).data();
  return view;
}

TensorView Arena::random(DType dtype, const Shape& shape, double amplitude) {
  const TensorView view = poisoned(dtype, shape);
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    store_element(view.data, dtype, i, amplitude * next_uniform(state_));
  }
  return view;
}

TensorView Arena::filled(DType dtype, const Shape& shape, double value) {
  const TensorView view = poisoned(dtype, shape);
  for (std::int64_t i = 0; i < view.numel(); ++i) store_element(view.data, dtype, i, value);
  return view;
}

TensorView Arena::of(DType dtype, const Shape& shape, const std::vector<double>& values) {
  const TensorView view = poisoned(dtype, shape);
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_element(view.data, dtype, static_cast<std::int64_t>(i), values[i]);
  }
  return view;
}

std::size_t Arena::index_of(const TensorView& view) const {
  const auto* start = view.as<const std::byte>();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (start >= buffers_[i].data() && start < buffers_[i].data() + buffers_[i].size()) return i;
  }
  throw std::logic_error("a view of memory that the arena does not own");
}

}  // namespace quire::test
