// SPDX-License-Identifier: Apache-2.0
// Prepared calls, and the framework's memory for ops that are called without a workspace.
#include "module.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

// scratch(like, bytes) → (array, address), of the Python package. Never freed: the interpreter's end comes before ours.
nb::object& scratch_function() {
  static auto* function = new nb::object();
  return *function;
}

}  // namespace

void* FrameworkScratch::allocate(void* user, std::int64_t bytes) {
  const nb::gil_scoped_acquire acquire;
  auto& self = *static_cast<FrameworkScratch*>(user);
  const nb::object made = scratch_function()(self.like_, bytes);
  self.memory_ = made[0];
  return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(made[1]));
}

nb::dict with_changes(std::string_view op, const nb::dict& arguments, nb::handle changed) {
  auto merged = nb::steal<nb::dict>(PyDict_Copy(arguments.ptr()));
  for (const auto& [name, value] : nb::borrow<nb::dict>(changed)) {
    if (!arguments.contains(name)) {
      const std::string given = nb::cast<std::string>(name);
      throw Error(ErrorCode::invalid_type, std::string(op), given, "an argument of the op",
                  "another keyword");
    }
    merged[name] = value;
  }
  return merged;
}

void bind_prepared(nb::module_& module) {
  module.def(
      "set_scratch", [](nb::object function) { scratch_function() = std::move(function); },
      nb::arg("function"));
  nb::class_<PreparedCall>(module, "PreparedCall", "An op's arguments with the kernel for them.")
      .def_prop_ro("plan", &PreparedCall::plan)
      .def(
          "run",
          [](const PreparedCall& self, const Context& context, nb::handle changed) {
            self.run(context, changed);
          },
          nb::arg("context"), nb::arg("changed").none());
}

}  // namespace quire::python
