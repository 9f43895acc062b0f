// SPDX-License-Identifier: Apache-2.0
// Conversions of single elements and the border itself, for the tests that check them against other
// libraries.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "dtype.h"
#include "module.h"
#include "quire/element.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

std::vector<double> decode(nb::handle name, const nb::bytes& codes) {
  const DType dtype = dtype_argument(name, {"decode", "dtype"});
  const auto count = static_cast<std::int64_t>(codes.size()) * 8 / bits(dtype);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[i] = load_element(codes.c_str(), dtype, i);
  return values;
}

nb::bytes encode(nb::handle name, const std::vector<double>& values) {
  const DType dtype = dtype_argument(name, {"encode", "dtype"});
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<char> codes(static_cast<std::size_t>(bytes_for(dtype, count)));
  for (std::int64_t i = 0; i < count; ++i) store_element(codes.data(), dtype, i, values[i]);
  return nb::bytes(codes.data(), codes.size());
}

// What the border makes of an object: dtype, shape, strides (elements), device, address.
nb::dict describe_tensor(nb::handle object, bool write) {
  const BorrowedTensor tensor(object, write ? Access::write : Access::read,
                              Place{"describe_tensor", "tensor"});
  const TensorView& view = tensor.view();
  nb::list shape;
  nb::list strides;
  for (int d = 0; d < view.rank; ++d) {
    shape.append(view.shape[d]);
    strides.append(view.strides[d]);
  }
  nb::dict result;
  result["dtype"] = std::string(name(view.dtype));
  result["shape"] = nb::tuple(shape);
  result["strides"] = nb::tuple(strides);
  result["device"] = to_string(view.device);
  result["address"] = reinterpret_cast<std::uintptr_t>(view.data);
  result["text"] = view.describe();
  return result;
}

}  // namespace

void bind_elements(nb::module_& module) {
  module.def("decode", decode, nb::arg("dtype"), nb::arg("codes"));
  module.def("encode", encode, nb::arg("dtype"), nb::arg("values"));
  module.def("describe_tensor", describe_tensor, nb::arg("tensor").none(),
             nb::arg("write") = false);
}

}  // namespace quire::python
