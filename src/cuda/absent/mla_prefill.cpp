// SPDX-License-Identifier: Apache-2.0
#include "cuda/absent/absent.h"
#include "cuda/hopper/mla_prefill/general/launch.h"
#include "cuda/hopper/mla_prefill/launch.h"

namespace quire::cuda::hopper {

std::string refuse_plan(const Device& device) {
  return refuse_absent(device);
}

void mla_prefill_plan(const MlaPrefillPlanArgs&, const Context&) {
  throw_absent("mla_prefill_plan");
}

std::string refuse_general(const MlaPrefillProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t general_workspace_bytes(const MlaPrefillProblem&) {
  return 0;
}

void mla_prefill_general(const MlaPrefillArgs&, const Context&) {
  throw_absent("mla_prefill");
}

std::string refuse_branch(const MlaPrefillProblem& problem) {
  return refuse_absent(problem.device);
}

std::int64_t branch_workspace_bytes(const MlaPrefillProblem&) {
  return 0;
}

void mla_prefill_branch(const MlaPrefillArgs&, const Context&) {
  throw_absent("mla_prefill");
}

}  // namespace quire::cuda::hopper
