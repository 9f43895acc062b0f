// SPDX-License-Identifier: Apache-2.0
// quire::Error → the builtin exception of its code, with op, argument, expected and actual as
// attributes.
#include <exception>

#include "module.h"
#include "quire/error.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

PyObject* exception_type(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_value:
      return PyExc_ValueError;
    case ErrorCode::invalid_type:
      return PyExc_TypeError;
    case ErrorCode::unsupported:
      return PyExc_NotImplementedError;
    case ErrorCode::runtime:
      return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

void translate(const std::exception_ptr& pointer, void* /*payload*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    PyObject* type = exception_type(error.code());
    const nb::object exception = nb::borrow(type)(error.what());
    exception.attr("op") = error.op();
    exception.attr("argument") = error.argument();
    exception.attr("expected") = error.expected();
    exception.attr("actual") = error.actual();
    PyErr_SetObject(type, exception.ptr());
  }
}

// For what Python checks itself, in the words and with the attributes of all other errors.
[[noreturn]] void refuse_in_python(bool is_type, const std::string& op, const std::string& argument,
                                   const std::string& expected, const std::string& actual) {
  throw Error(is_type ? ErrorCode::invalid_type : ErrorCode::invalid_value, op, argument, expected,
              actual);
}

}  // namespace

Error in_python(const Error& error, const nb::dict& arguments) {
  const std::string& argument = error.argument();
  const bool names_cache = argument == "cache" || argument.starts_with("cache.");
  if (!names_cache || !arguments.contains("index_cache")) return error;
  return {error.code(), error.op(), "index_" + argument, error.expected(), error.actual()};
}

void bind_errors(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def("refuse", refuse_in_python, nb::arg("is_type"), nb::arg("op"), nb::arg("argument"),
             nb::arg("expected"), nb::arg("actual"));
}

}  // namespace quire::python
