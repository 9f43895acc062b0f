// SPDX-License-Identifier: Apache-2.0
#include "packed_weight.h"

#include <nanobind/stl/unique_ptr.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "dtype.h"
#include "module.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

// A huge page. Panels are streams of some 100 KiB: with small pages every few lines need a new
// translation.
constexpr std::int64_t kAlignment = std::int64_t{1} << 21;

constexpr const char* kClass = "PackedWeight";

nb::str as_str(std::string_view text) {
  return nb::str(text.data(), text.size());
}

nb::tuple state_of_weight(const PackedWeight& weight) {
  const Weight& view = weight.view();
  const PackedShape& shape = view.packed;
  return nb::make_tuple(QUIRE_VERSION, as_str(name(view.format)), as_str(name(view.packing)),
                        view.group_size, shape.rows, shape.columns, as_str(name(shape.dtype)),
                        as_str(name(shape.scale_dtype)), shape.scale_group, shape.has_zeros,
                        view.perm.has_value(), weight.storage());
}

WeightFormat read_format(nb::handle object) {
  const Place place{kClass, "format"};
  if (const auto format = weight_format_from_name(text(object, place))) return *format;
  refuse(ErrorCode::invalid_value, place, "the name of a weight format", object);
}

WeightPacking read_packing(nb::handle object) {
  const Place place{kClass, "packing"};
  if (const auto packing = weight_packing_from_name(text(object, place))) return *packing;
  refuse(ErrorCode::invalid_value, place, "the name of a packing that this version has", object);
}

// The order inside a packing is no promise between versions, nor is a packing one between machines.
void check_version(nb::handle object) {
  if (text_of(object) == QUIRE_VERSION) return;
  refuse(ErrorCode::invalid_value, {kClass, "version"},
         "'" QUIRE_VERSION "', which packed it (pack the weight again)", object);
}

// What a state says, without addresses.
Weight form_from_state(const nb::tuple& state) {
  const auto size = [&](std::size_t at, const char* name) {
    return whole_number(state[at], {kClass, name}, {.lowest = 0});
  };
  check_version(state[0]);
  Weight form;
  form.format = read_format(state[1]);
  form.packing = read_packing(state[2]);
  form.group_size = size(3, "group_size");
  form.packed = {.rows = size(4, "rows"),
                 .columns = size(5, "columns"),
                 .dtype = dtype_argument(state[6], {kClass, "dtype"}),
                 .scale_dtype = dtype_argument(state[7], {kClass, "scale_dtype"}),
                 .scale_group = size(8, "scale_group"),
                 .has_zeros = flag(state[9], {kClass, "has_zeros"})};
  if (flag(state[10], {kClass, "has_perm"})) form.perm = TensorView{};
  return form;
}

void restore(PackedWeight& self, nb::handle object) {
  const nb::tuple state = state_of(object, kClass, 12);
  try {
    new (&self) PackedWeight(form_from_state(state), nb::handle(state[11]));
  } catch (const Error& error) {
    throw Error(error.code(), kClass, error.argument(), error.expected(), error.actual());
  }
}

}  // namespace

void PackedWeight::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

TensorView PackedWeight::allocate(std::int64_t bytes) {
  const std::int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  storage_.reset(static_cast<std::byte*>(
      std::aligned_alloc(static_cast<std::size_t>(kAlignment), static_cast<std::size_t>(rounded))));
  if (storage_ == nullptr) throw std::bad_alloc();
  madvise(storage_.get(), static_cast<std::size_t>(rounded), MADV_HUGEPAGE);  // a hint
  return TensorView::contiguous(storage_.get(), DType::u8, {bytes});
}

PackedWeight::PackedWeight(const Weight& weight, const Context& context)
    : view_(pack_weight(weight, allocate(packed_bytes(weight, context)), context)) {}

PackedWeight::PackedWeight(const Weight& weight, const TensorView& storage, nb::object owner,
                           const Context& context)
    : owner_(std::move(owner)), view_(pack_weight(weight, storage, context)) {}

PackedWeight::PackedWeight(const Weight& form, nb::handle storage) {
  if (PyBytes_Check(storage.ptr()) == 0) {
    const BorrowedTensor array(storage, Access::read, {kClass, "storage"});
    view_ = packed_view(form, array.view());
    owner_ = nb::borrow(storage);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(PyBytes_Size(storage.ptr()));
  const TensorView own = allocate(std::max<std::int64_t>(bytes, 1));
  std::memcpy(own.data, PyBytes_AsString(storage.ptr()), static_cast<std::size_t>(bytes));
  view_ = packed_view(form, TensorView::contiguous(own.data, DType::u8, {bytes}));
}

nb::object PackedWeight::storage() const {
  if (owner_.is_valid()) return owner_;
  const TensorView& data = view_.data;
  return nb::bytes(data.as<const char>(), static_cast<std::size_t>(data.shape[0]));
}

void bind_packed_weight(nb::module_& module) {
  nb::class_<PackedWeight>(module, kClass)
      .def_prop_ro("format",
                   [](const PackedWeight& weight) { return as_str(name(weight.view().format)); })
      .def_prop_ro("packing",
                   [](const PackedWeight& weight) { return as_str(name(weight.view().packing)); })
      .def_prop_ro("shape",
                   [](const PackedWeight& weight) {
                     return nb::make_tuple(weight.view().rows(), weight.view().columns());
                   })
      .def_prop_ro("nbytes", [](const PackedWeight& weight) { return weight.view().data.shape[0]; })
      // Nothing can change one, so that the copy is the thing itself.
      .def("__copy__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__deepcopy__", [](nb::handle self, nb::handle /*memo*/) { return nb::borrow(self); },
          nb::arg("memo").none())
      .def("__getstate__", state_of_weight)
      .def("__setstate__", restore, nb::arg("state").none());
  module.def("pack_weight", [](const Context& context, const nb::kwargs& arguments) {
    ArgumentReader reader("pack_weight", arguments, context.stream);
    const Weight weight = reader.weight();
    const std::optional<TensorView> storage = reader.optional_tensor("storage", Access::write);
    if (storage.has_value()) {
      return std::make_unique<PackedWeight>(weight, *storage, reader.find("storage"), context);
    }
    const nb::gil_scoped_release release;
    return std::make_unique<PackedWeight>(weight, context);
  });
  module.def("packed_bytes", [](const Context& context, const nb::kwargs& arguments) {
    ArgumentReader reader("pack_weight", arguments, context.stream);
    return packed_bytes(reader.weight(), context);
  });
}

}  // namespace quire::python
