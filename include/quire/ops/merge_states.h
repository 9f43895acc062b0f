// SPDX-License-Identifier: Apache-2.0
// Joins partial attentions over disjoint key sets: o = Σ o_s · exp(lse_s - lse), lse = log Σ
// exp(lse_s). A state with LSE -inf contributes nothing, whatever its o holds; all states empty
// give 0 and -inf.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/plan.h"
#include "quire/prepared.h"
#include "quire/tensor_view.h"

namespace quire {

struct MergeStatesArgs {
  TensorView states;                // [num_states, tokens, heads, value_dim] f32, f16, bf16
  TensorView lses;                  // f32 [num_states, tokens, heads], natural log
  TensorView out;                   // [tokens, heads, value_dim]
  std::optional<TensorView> lse{};  // f32 [tokens, heads]
};

struct MergeStatesProblem {
  Device device{};
  std::int64_t num_states = 0;
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t value_dim = 0;
  DType dtype = DType::bf16;

  bool operator==(const MergeStatesProblem&) const = default;
};

QUIRE_API MergeStatesProblem validate(const MergeStatesArgs& args);
QUIRE_API Plan plan(const MergeStatesProblem& problem, const Context& context = {});
QUIRE_API Prepared<MergeStatesProblem> prepare(const MergeStatesProblem& problem,
                                               const Context& context = {});
QUIRE_API Plan supports(const MergeStatesArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<MergeStatesProblem>& prepared, const MergeStatesArgs& args,
                   const Context& context = {});
QUIRE_API void merge_states(const MergeStatesArgs& args, const Context& context = {});

}  // namespace quire
