// SPDX-License-Identifier: Apache-2.0
// Quire's dtypes of the three ways in which arrays say theirs. None: another one, or one that Quire does not compute with.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "dlpack.h"
#include "quire/dtype.h"

namespace quire::python {

// By the name that numpy, ml_dtypes and torch share.
std::optional<DType> dtype_from_array_name(std::string_view name);
std::optional<DType> dtype_from_dlpack(dlpack::DataType type, std::uint64_t flags);
// numpy's numbers of this machine's byte order; where there is none, the slower ways know more, or why not.
std::optional<DType> dtype_from_buffer(const Py_buffer& buffer);

}  // namespace quire::python
