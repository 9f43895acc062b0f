// SPDX-License-Identifier: Apache-2.0
// Python spells dtypes as Quire prints them: "bf16", "fp8_e4m3".
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "quire/dtype.h"
#include "quire/error.h"
#include "scalars.h"

namespace quire::python {

inline DType dtype_argument(nanobind::handle object, const Place& place) {
  constexpr std::string_view kExpected = "a dtype such as 'bf16' or 'fp8_e4m3'";
  const std::string name = text(object, place, kExpected);
  if (const auto dtype = dtype_from_name(name)) return *dtype;
  refuse(ErrorCode::invalid_value, place, kExpected, object);
}

}  // namespace quire::python
