// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_prefill/launch.h"

#include "cuda/any/mla_prefill/decoded_part.h"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/sm90/mla_prefill/branch.h"

namespace quire::cuda::sm90::mla_prefill {
namespace {

class BranchKernel final : public Kernel<MlaPrefillArgs> {
 public:
  explicit BranchKernel(const MlaPrefillProblem& problem)
      : shape_(branch_shape(problem)),
        visible_(visible_range(problem.mask)),
        decoded_(problem, any::mla_prefill::DecodeKernels::fastest) {
    Carver counter;
    static_cast<void>(carve_branch(counter, shape_));
    branch_bytes_ = counter.bytes();
  }

  std::int64_t workspace_bytes() const override {
    return branch_bytes_ + decoded_.workspace_bytes();
  }

  void run(const MlaPrefillArgs& args, const Context& context) const override {
    if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
    const DeviceScope scope(args.q.device);
    Branch(args, shape_, visible_, context).run();
    decoded_.run(args, context, static_cast<std::byte*>(context.workspace) + branch_bytes_);
  }

 private:
  BranchShape shape_;
  VisibleRange visible_;
  any::mla_prefill::DecodedPart decoded_;
  std::int64_t branch_bytes_;
};

}  // namespace

std::string refuse_branch(const MlaPrefillProblem& problem) {
  const std::string elsewhere = refuse_hopper(problem.device);
  return elsewhere.empty() ? refuse_shape(problem) : elsewhere;
}

KernelPtr<MlaPrefillArgs> prepare_branch(const MlaPrefillProblem& problem) {
  return std::make_unique<const BranchKernel>(problem);
}

}  // namespace quire::cuda::sm90::mla_prefill
