// SPDX-License-Identifier: Apache-2.0
// Numbers, flags and names of a call. Every refusal names op and argument and shows what came, however
// strange: nothing here leaves a caller with an error of the binding library's own.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "place.h"
#include "quire/error.h"

namespace quire::python {

// Of the object's class: "Tensor".
std::string class_name(nanobind::handle object);
// Scalars and texts as they are where that is short, anything else by its class.
std::string shown(nanobind::handle object);

// Throws Error: "op: 'argument' must be <expected>, got <shown(actual)>".
[[noreturn]] void refuse(ErrorCode code, const Place& place, std::string_view expected,
                         nanobind::handle actual);

struct Range {
  std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  std::int64_t highest = std::numeric_limits<std::int64_t>::max();
};

// Whatever has __index__, numpy's whole numbers say; but no bool, which is a slip here.
std::int64_t whole_number(nanobind::handle object, const Place& place, Range range = {},
                          std::string_view expected = "a whole number");
// Of any iterable that is no text.
std::vector<std::int64_t> whole_numbers(nanobind::handle object, const Place& place);
// An address or a stream, from 0 to 2^64 - 1.
std::uintptr_t address(nanobind::handle object, const Place& place);
// Whatever has __float__ or __index__; but no bool and no text.
double number(nanobind::handle object, const Place& place, std::string_view expected = "a number");
bool flag(nanobind::handle object, const Place& place);
std::string text(nanobind::handle object, const Place& place, std::string_view expected = "a str");

// Nothing for what is no str, or none that UTF-8 can hold.
std::optional<std::string> text_of(nanobind::handle object);

// The parts of a pickled value, `count` of them.
nanobind::tuple state_of(nanobind::handle object, const char* op, std::size_t count);

}  // namespace quire::python
