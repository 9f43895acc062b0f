// SPDX-License-Identifier: Apache-2.0
// Y = X · Wᵀ (+ bias): the projections of fused_qkv_matmul without a cache, by the same kernels: o, gate, up, down and
// the head of a model. Sums, scales and bias are fp32 or better with one rounding at the end.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/activations.h"
#include "quire/context.h"
#include "quire/export.h"
#include "quire/plan.h"
#include "quire/prepared.h"
#include "quire/weight.h"

namespace quire {

struct LinearArgs {
  TensorView x;                      // [tokens, hidden] f32, f16, bf16, or fp8 with input_scale
  Weight weight;                     // [N, hidden]
  std::optional<TensorView> bias{};  // [N] f32, or the dtype of out
  // fp8 x: f32 [1, 1] (tensor), [tokens, 1] (token) or [tokens, ceil(hidden/128)] (1×128 block),
  // any strides.
  std::optional<TensorView> input_scale{};
  TensorView out;  // [tokens, N] f32, f16 or bf16; written
  Activations activations = Activations::exact;
  // These three are as in FusedQkvArgs (quire/ops/fused_qkv_matmul.h).
  bool allow_fast_accum = false;
  bool allow_tf32 = false;
  bool batch_invariant = false;
};

struct LinearProblem {
  Device device{};
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t columns = 0;  // N
  DType x_dtype = DType::bf16;
  DType out_dtype = DType::bf16;
  WeightFormat weight_format = WeightFormat::dense;
  DType weight_dtype = DType::bf16;
  WeightPacking weight_packing = WeightPacking::none;
  std::int64_t group_size = 0;
  bool has_block_scales = false;  // fp8: of x or of the weight, for every 128 of K
  bool has_zeros = false;
  bool has_perm = false;
  bool has_bias = false;
  Activations activations = Activations::exact;
  bool allow_fast_accum = false;
  bool allow_tf32 = false;
  bool batch_invariant = false;
  // Largest power of two up to 16 that divides, in bytes, the start and the row strides of x, weight, out and bias.
  std::int64_t alignment = 1;

  bool operator==(const LinearProblem&) const = default;
};

// Checks everything that can be checked on the host and returns the problem; throws Error, writes
// nothing.
QUIRE_API LinearProblem validate(const LinearArgs& args);
QUIRE_API Plan plan(const LinearProblem& problem, const Context& context = {});
QUIRE_API Prepared<LinearProblem> prepare(const LinearProblem& problem,
                                          const Context& context = {});
// validate and plan without running.
QUIRE_API Plan supports(const LinearArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<LinearProblem>& prepared, const LinearArgs& args,
                   const Context& context = {});
QUIRE_API void linear(const LinearArgs& args, const Context& context = {});

}  // namespace quire
