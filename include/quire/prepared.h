// SPDX-License-Identifier: Apache-2.0
// A problem with the kernel that was chosen for it: everything that can be decided before the addresses are known.
// Engines that call an op again and again with the same sizes prepare it once:
//   const auto prepared = quire::prepare(quire::validate(args), context);
//   quire::run(prepared, args, context);   // every step, with other addresses and contents
// The one-call form (`quire::flash_attention(args, context)`) remembers the problems it was last called with.
#pragma once

#include <memory>
#include <utility>

#include "quire/plan.h"

namespace quire {

// A kernel with its own plan; the backends derive from it.
class AnyKernel {
 public:
  AnyKernel() = default;
  AnyKernel(const AnyKernel&) = delete;
  AnyKernel& operator=(const AnyKernel&) = delete;
  virtual ~AnyKernel() = default;
};

// A value that is cheap to copy. What it refers to never changes, so any number of threads may run it at once, each
// with a workspace of its own.
template <typename Problem> class Prepared {
 public:
  struct State {
    Problem problem;
    Plan plan;                                  // printable; unsupported plans have no kernel
    std::unique_ptr<const AnyKernel> kernel{};  // null: no candidate takes the problem
  };

  explicit Prepared(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  const Problem& problem() const { return state_->problem; }
  const Plan& plan() const { return state_->plan; }
  const State& state() const { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace quire
