// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/copy_pages/launch.h"

namespace quire::cuda::hopper {

std::string refuse(const CopyPagesProblem& problem) {
  return refuse_absent(problem.device);
}

void copy_pages(const CopyPagesArgs&, const Context&) {
  throw_absent("copy_pages");
}

}  // namespace quire::cuda::hopper
