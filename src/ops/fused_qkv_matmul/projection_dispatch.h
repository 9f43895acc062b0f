// SPDX-License-Identifier: Apache-2.0
// The candidates of an op that is a projection: the same drivers and kernels for fused_qkv_matmul and linear, under the
// op's own name. Backends plan a FusedQkvProblem, which of linear has no KV heads, and run a Projection.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/projection.h"
#include "cpu/fused_qkv_matmul/fused_qkv_matmul.h"
#include "cuda/kernels.h"
#include "ops/dispatch.h"

namespace quire::ops {

// A projection's kernel as one of the op.
template <typename Args> class ProjectionKernel final : public Kernel<Args> {
 public:
  explicit ProjectionKernel(KernelPtr<Projection> kernel) : kernel_(std::move(kernel)) {}

  std::int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  Choices choices() const override { return kernel_->choices(); }
  void run(const Args& args, const Context& context) const override {
    kernel_->run(Projection(args), context);
  }

 private:
  KernelPtr<Projection> kernel_;
};

inline std::string refuse_packed_reference(const FusedQkvProblem& problem) {
  if (problem.weight_packing == WeightPacking::none) return "";
  return fmt::format("the weight is packed as {}, the reference reads plain weights",
                     name(problem.weight_packing));
}

// `problem_of`: the op's problem as the backends plan it.
template <typename Problem, typename Args>
Backends<Problem, Args> projection_backends(const std::string& op,
                                            FusedQkvProblem (*problem_of)(const Problem&),
                                            void (*run_reference)(const Args&)) {
  Candidates<Problem, Args> cuda;
  for (auto& from : cuda::projection_kernels(op)) {
    cuda.push_back({.kernel = from.kernel,
                    .takes = from.takes,
                    .refuse = [refuse = from.refuse,
                               problem_of](const Problem& p) { return refuse(problem_of(p)); },
                    .prepare =
                        [prepare = from.prepare, problem_of](const Problem& p) {
                          return std::make_unique<const ProjectionKernel<Args>>(
                              prepare(problem_of(p)));
                        }});
  }
  return {.cuda = std::move(cuda),
          .refuse_on_cpu = [problem_of](const Problem& p,
                                        cpu::Target t) { return cpu::refuse(problem_of(p), t); },
          .run_on_cpu = [](const Args& args, const Context& context,
                           cpu::Target t) { cpu::project(Projection(args), context, t); },
          .run_reference = run_reference,
          .refuse_reference =
              [problem_of](const Problem& p) { return refuse_packed_reference(problem_of(p)); }};
}

}  // namespace quire::ops
