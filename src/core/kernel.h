// SPDX-License-Identifier: Apache-2.0
// What a backend hands to src/ops: for every op a list of candidates, best first, each of which refuses a problem or makes
// a kernel for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quire/context.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

using Choices = std::vector<std::pair<std::string, std::string>>;  // ("tile_q", "128"), …

// A kernel that was made for a problem, with all that it decided about it. Arguments that reach `run` are valid, and of
// that problem.
template <typename Args> class Kernel : public AnyKernel {
 public:
  // Scratch that `run` must find in the context.
  virtual std::int64_t workspace_bytes() const { return 0; }
  virtual Choices choices() const { return {}; }
  virtual void run(const Args& args, const Context& context) const = 0;
};

template <typename Args> using KernelPtr = std::unique_ptr<const Kernel<Args>>;

template <typename Problem, typename Args> struct Candidate {
  std::string kernel;  // "cuda/sm90/decode/flash_attention"
  std::string takes;   // in words: "any valid problem on cpu"
  // Empty, or why this kernel does not take the problem.
  std::function<std::string(const Problem& problem)> refuse;
  // Of a problem that it does not refuse.
  std::function<KernelPtr<Args>(const Problem& problem)> prepare;
};

template <typename Problem, typename Args> using Candidates = std::vector<Candidate<Problem, Args>>;

// A kernel that decides nothing before it runs, but for the size of its scratch.
template <typename Args> class PlainKernel final : public Kernel<Args> {
 public:
  using Run = std::function<void(const Args& args, const Context& context)>;

  explicit PlainKernel(Run run, std::int64_t workspace_bytes = 0)
      : run_(std::move(run)), workspace_bytes_(workspace_bytes) {}

  std::int64_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const Args& args, const Context& context) const override { run_(args, context); }

 private:
  Run run_;
  std::int64_t workspace_bytes_;
};

// The `prepare` of a candidate whose kernel is the same for every problem.
template <typename Problem, typename Args>
std::function<KernelPtr<Args>(const Problem&)> always(typename PlainKernel<Args>::Run run) {
  return [run = std::move(run)](const Problem&) {
    return std::make_unique<const PlainKernel<Args>>(run);
  };
}

}  // namespace quire
