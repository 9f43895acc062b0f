// SPDX-License-Identifier: Apache-2.0
#include "packed_weight.h"

#include <nanobind/stl/unique_ptr.h>

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "module.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

// A huge page. Panels are streams of some 100 KiB: with small pages every few lines need a new
// translation.
constexpr std::int64_t kAlignment = std::int64_t{1} << 21;

}  // namespace

void PackedWeight::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

PackedWeight::PackedWeight(const Weight& weight, const Context& context) {
  const std::int64_t bytes = packed_bytes(weight, context);
  const std::int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  storage_.reset(static_cast<std::byte*>(
      std::aligned_alloc(static_cast<std::size_t>(kAlignment), static_cast<std::size_t>(rounded))));
  if (storage_ == nullptr) throw std::bad_alloc();
  madvise(storage_.get(), static_cast<std::size_t>(rounded), MADV_HUGEPAGE);  // a hint
  view_ = pack_weight(weight, TensorView::contiguous(storage_.get(), DType::u8, {bytes}), context);
}

PackedWeight::PackedWeight(const Weight& weight, const TensorView& storage, nb::object owner,
                           const Context& context)
    : owner_(std::move(owner)), view_(pack_weight(weight, storage, context)) {}

void bind_packed_weight(nb::module_& module) {
  nb::class_<PackedWeight>(module, "PackedWeight")
      .def_prop_ro("format",
                   [](const PackedWeight& weight) {
                     const std::string_view text = name(weight.view().format);
                     return nb::str(text.data(), text.size());
                   })
      .def_prop_ro("packing",
                   [](const PackedWeight& weight) {
                     const std::string_view text = name(weight.view().packing);
                     return nb::str(text.data(), text.size());
                   })
      .def_prop_ro("shape",
                   [](const PackedWeight& weight) {
                     return nb::make_tuple(weight.view().rows(), weight.view().columns());
                   })
      .def_prop_ro("nbytes",
                   [](const PackedWeight& weight) { return weight.view().data.shape[0]; });
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
