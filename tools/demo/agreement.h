// SPDX-License-Identifier: Apache-2.0
// Whether an op and the oracle agree, by the rules of tools/check/compare.h.
#pragma once

#include <optional>
#include <string>

#include "quire/tensor_view.h"
#include "tools/check/compare.h"

namespace quire::tools::demo {

enum class Closeness : std::uint8_t {
  bits,       // the oracle's own arithmetic: the same bits, wherever the pages lie
  tolerance,  // another kernel: at most twice the error of a naive evaluation, and one ulp
};

// What is wrong, or nothing.
using Fault = std::optional<std::string>;

Fault fault_of(const Comparison& comparison);

// Tensors of one shape and any strides. `naive` is the oracle's result in the input's own precision;
// it is looked at for Closeness::tolerance only, and an op may have none.
Fault compare_outputs(const std::string& name, const TensorView& actual, const TensorView& exact,
                      const std::optional<TensorView>& naive, Closeness closeness);

}  // namespace quire::tools::demo
