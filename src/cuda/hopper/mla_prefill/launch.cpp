// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/mla_prefill/launch.h"

#include "cuda/hopper/mla_prefill/branch.h"
#include "cuda/hopper/mla_prefill/decoded_part.h"
#include "cuda/runtime/device_facts.h"
#include "cuda/runtime/device_scope.h"

namespace quire::cuda::hopper {
namespace {

std::int64_t prefill_bytes(const MlaPrefillProblem& problem) {
  Carver counter;
  static_cast<void>(carve_branch(counter, branch_shape(problem)));
  return counter.bytes();
}

}  // namespace

std::string refuse_branch(const MlaPrefillProblem& problem) {
  const std::string elsewhere = refuse_hopper(problem.device);
  return elsewhere.empty() ? refuse_shape(problem) : elsewhere;
}

std::int64_t branch_workspace_bytes(const MlaPrefillProblem& problem) {
  return prefill_bytes(problem) + decoded_part_bytes(problem, DecodeKernels::fastest);
}

void mla_prefill_branch(const MlaPrefillArgs& args, const Context& context) {
  if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
  const DeviceScope scope(args.q.device);
  const MlaPrefillProblem problem = validate(args);
  Branch(args, branch_shape(problem), context).run();
  decode_part(args, problem, DecodeKernels::fastest, context,
              static_cast<std::byte*>(context.workspace) + prefill_bytes(problem));
}

}  // namespace quire::cuda::hopper
