// SPDX-License-Identifier: Apache-2.0
// What names things on the border to Python without costing a call that has no error.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace quire::python {

// The op and argument that an Error names. Views: a call makes twenty of them and reads none.
struct Place {
  std::string_view op;
  std::string_view argument;
  std::string_view field{};  // of the argument: "blocks" of "cache"; empty: the argument itself

  std::string name() const {
    std::string text(argument);
    return field.empty() ? text : text.append(".").append(field);
  }
};

// The Python string of a literal, made once. Call with the GIL held.
nanobind::handle interned(const char* literal);

}  // namespace quire::python
