// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/agreement.h"

#include "tools/demo/tensor.h"

namespace quire::tools::demo {

Fault fault_of(const Comparison& comparison) {
  return comparison.fault.empty() ? Fault{} : Fault{comparison.fault};
}

Fault compare_outputs(const std::string& name, const TensorView& actual, const TensorView& exact,
                      const std::optional<TensorView>& naive, Closeness closeness) {
  if (actual.numel() == 0) return std::nullopt;
  const Tensor got = Tensor::copy_of(actual);
  const Tensor wanted = Tensor::copy_of(exact);
  if (closeness == Closeness::bits) {
    return fault_of(compare_bits(name, got.view(), wanted.view()));
  }
  if (!naive) return fault_of(compare_tolerance(name, got.view(), wanted.view(), {}));
  const Tensor rough = Tensor::copy_of(*naive);
  return fault_of(compare_tolerance(name, got.view(), wanted.view(), {.naive = rough.view()}));
}

}  // namespace quire::tools::demo
