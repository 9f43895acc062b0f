// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/quantize_fp8/launch.h"

namespace quire::cuda::hopper {

std::string refuse(const QuantizeFp8Problem& problem) {
  return refuse_absent(problem.device);
}

void quantize_fp8(const QuantizeFp8Args&, const Context&) {
  throw_absent("quantize_fp8");
}

}  // namespace quire::cuda::hopper
