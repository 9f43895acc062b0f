// SPDX-License-Identifier: Apache-2.0
#include "scalars.h"

#include <unordered_map>

namespace nb = nanobind;

namespace quire::python {
namespace {

constexpr std::size_t kLongestShown = 80;  // characters

// After a failed call into Python: what a number's own methods raise says that it is none; anything
// else, an interrupt say, goes on to the caller.
void clear_refusal() {
  const bool is_refusal = PyErr_ExceptionMatches(PyExc_TypeError) != 0 ||
                          PyErr_ExceptionMatches(PyExc_ValueError) != 0 ||
                          PyErr_ExceptionMatches(PyExc_ArithmeticError) != 0;
  if (!is_refusal) throw nb::python_error();
  PyErr_Clear();
}

bool is_bool(nb::handle object) {
  return PyBool_Check(object.ptr()) != 0;
}

// The object as an int, or null.
nb::object as_int(nb::handle object) {
  if (is_bool(object)) return {};
  PyObject* index = PyNumber_Index(object.ptr());
  if (index == nullptr) clear_refusal();
  return nb::steal(index);
}

std::string brief(std::string text) {
  if (text.size() <= kLongestShown) return text;
  std::size_t end = kLongestShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u)
    --end;  // within UTF-8
  return text.substr(0, end) + "…";
}

}  // namespace

std::string class_name(nb::handle object) {
  return text_of(nb::getattr(object.type(), "__name__")).value_or("an object");
}

nb::handle interned(const char* literal) {
  static std::unordered_map<const char*, PyObject*>
      strings;  // by address; as many as the module has names
  PyObject*& string = strings[literal];
  if (string == nullptr) string = PyUnicode_InternFromString(literal);
  if (string == nullptr) throw nb::python_error();
  return string;
}

std::optional<std::string> text_of(nb::handle object) {
  if (PyUnicode_Check(object.ptr()) == 0) return std::nullopt;
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (data == nullptr) {
    clear_refusal();
    return std::nullopt;
  }
  return std::string(data, static_cast<std::size_t>(size));
}

std::string shown(nb::handle object) {
  const bool is_scalar = object.is_none() || nb::isinstance<nb::str>(object) ||
                         nb::isinstance<nb::int_>(object) || nb::isinstance<nb::float_>(object);
  if (!is_scalar) return class_name(object);
  PyObject* text = PyObject_Repr(object.ptr());  // of an int of thousands of digits there is none
  if (text == nullptr) {
    clear_refusal();
    return "a very large " + class_name(object);
  }
  return brief(text_of(nb::steal(text)).value_or(class_name(object)));
}

void refuse(ErrorCode code, const Place& place, std::string_view expected, nb::handle actual) {
  throw Error(code, std::string(place.op), place.name(), std::string(expected), shown(actual));
}

std::int64_t whole_number(nb::handle object, const Place& place, Range range,
                          std::string_view expected) {
  const nb::object number = as_int(object);
  if (!number.is_valid()) refuse(ErrorCode::invalid_type, place, expected, object);
  int overflow = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || value < range.lowest || value > range.highest) {
    refuse(ErrorCode::invalid_value, place,
           std::string(expected) + " from " + std::to_string(range.lowest) + " to " +
               std::to_string(range.highest),
           number);
  }
  return value;
}

std::vector<std::int64_t> whole_numbers(nb::handle object, const Place& place) {
  constexpr std::string_view kExpected = "a sequence of whole numbers";
  const bool is_text = nb::isinstance<nb::str>(object) || nb::isinstance<nb::bytes>(object);
  PyObject* items = is_text ? nullptr : PySequence_List(object.ptr());
  if (items == nullptr) {
    if (!is_text) clear_refusal();
    refuse(ErrorCode::invalid_type, place, kExpected, object);
  }
  std::vector<std::int64_t> numbers;
  for (const nb::handle item : nb::steal<nb::list>(items)) {
    const std::string argument = place.name() + "[" + std::to_string(numbers.size()) + "]";
    numbers.push_back(whole_number(item, {place.op, argument}));
  }
  return numbers;
}

std::uintptr_t address(nb::handle object, const Place& place) {
  constexpr std::string_view kExpected = "a whole number from 0 to 2^64 - 1";
  const nb::object number = as_int(object);
  if (!number.is_valid()) refuse(ErrorCode::invalid_type, place, kExpected, object);
  const std::uint64_t value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    clear_refusal();
    refuse(ErrorCode::invalid_value, place, kExpected, number);
  }
  return static_cast<std::uintptr_t>(value);
}

double number(nb::handle object, const Place& place, std::string_view expected) {
  const bool can_be = !is_bool(object) && PyNumber_Check(object.ptr()) != 0;
  PyObject* value = can_be ? PyNumber_Float(object.ptr()) : nullptr;
  if (value == nullptr) {
    if (can_be) clear_refusal();
    const bool is_too_large = can_be && nb::isinstance<nb::int_>(object);
    refuse(is_too_large ? ErrorCode::invalid_value : ErrorCode::invalid_type, place, expected,
           object);
  }
  return PyFloat_AsDouble(nb::steal(value).ptr());
}

bool flag(nb::handle object, const Place& place) {
  if (is_bool(object)) return object.is(nb::handle(Py_True));
  refuse(ErrorCode::invalid_type, place, "True or False", object);
}

std::string text(nb::handle object, const Place& place, std::string_view expected) {
  const std::optional<std::string> result = text_of(object);
  if (result) return *result;
  refuse(ErrorCode::invalid_type, place, expected, object);
}

nb::tuple state_of(nb::handle object, const char* op, std::size_t count) {
  if (nb::isinstance<nb::tuple>(object) && nb::len(object) == count) {
    return nb::borrow<nb::tuple>(object);
  }
  refuse(ErrorCode::invalid_value, {op, "state"}, "what its own __getstate__ gave", object);
}

}  // namespace quire::python
