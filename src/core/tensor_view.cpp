// SPDX-License-Identifier: Apache-2.0
#include "quire/tensor_view.h"

#include "quire/element.h"
#include "quire/error.h"

namespace quire {

TensorView TensorView::contiguous(void* data, DType dtype, std::span<const std::int64_t> shape,
                                  Device device) {
  if (shape.size() > kMaxRank) {
    throw Error(ErrorCode::invalid_value, "TensorView", "shape",
                "of rank " + std::to_string(kMaxRank) + " or less",
                "rank " + std::to_string(shape.size()));
  }
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  view.device = device;
  std::int64_t stride = 1;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    view.shape[dim] = shape[dim];
    view.strides[dim] = stride;
    stride *= shape[dim];
  }
  return view;
}

std::int64_t TensorView::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t size : dims()) product *= size;
  return product;
}

bool TensorView::is_contiguous() const {
  std::int64_t expected = 1;
  for (int dim = rank - 1; dim >= 0; --dim) {
    if (shape[dim] != 1 && strides[dim] != expected) return false;
    expected *= shape[dim];
  }
  return true;
}

double TensorView::load(std::initializer_list<std::int64_t> index) const {
  return load_element(data, dtype, offset(index));
}

void TensorView::store(std::initializer_list<std::int64_t> index, double value) const {
  store_element(data, dtype, offset(index), value);
}

std::string TensorView::describe() const {
  std::string text(name(dtype));
  // Errors describe views that nobody has checked yet.
  if (rank < 0 || rank > kMaxRank) return text + " of rank " + std::to_string(rank);
  text += '[';
  for (int dim = 0; dim < rank; ++dim) {
    if (dim > 0) text += ", ";
    text += std::to_string(shape[dim]);
  }
  return text + ']';
}

}  // namespace quire
