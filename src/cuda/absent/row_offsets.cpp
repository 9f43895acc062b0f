// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/row_offsets/launch.h"

namespace quire::cuda::hopper {

std::string refuse(const RowOffsetsProblem& problem) {
  return refuse_absent(problem.device);
}

void row_offsets(const RowOffsetsArgs&, const Context&) {
  throw_absent("row_offsets");
}

}  // namespace quire::cuda::hopper
