// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/mla_decode/general/launch.h"

namespace quire::cuda::hopper {

std::string refuse_general(const MlaDecodeProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t general_workspace_bytes(const MlaDecodeProblem&) {
  return 0;
}

void mla_decode_general(const MlaDecodeArgs&, const Context&) {
  throw_absent("mla_decode");
}

}  // namespace quire::cuda::hopper
