// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_prefill/launch.h"

#include "cuda/hopper/mla_prefill/branch.h"
#include "cuda/runtime/device_facts.h"
#include "cuda/runtime/device_scope.h"

namespace quire::cuda::hopper {

std::string refuse_branch(const MlaPrefillProblem& problem) {
  const std::string elsewhere = refuse_hopper(problem.device);
  return elsewhere.empty() ? refuse_shape(problem) : elsewhere;
}

std::int64_t branch_workspace_bytes(const MlaPrefillProblem& problem) {
  Carver counter;
  static_cast<void>(carve_branch(counter, branch_shape(problem)));
  return counter.bytes();
}

void mla_prefill_branch(const MlaPrefillArgs& args, const Context& context) {
  if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
  const DeviceScope scope(args.q.device);
  Branch(args, branch_shape(validate(args)), context).run();
}

}  // namespace quire::cuda::hopper
