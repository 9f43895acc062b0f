// SPDX-License-Identifier: Apache-2.0
// Python spells dtypes as Quire prints them: "bf16", "fp8_e4m3".
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "quire/dtype.h"
#include "quire/error.h"

namespace quire::python {

inline DType dtype_argument(const std::string& text) {
  if (const auto dtype = dtype_from_name(text)) return *dtype;
  throw Error(ErrorCode::invalid_value, "quire", "dtype", "a dtype such as 'bf16' or 'fp8_e4m3'",
              "'" + text + "'");
}

}  // namespace quire::python
