// SPDX-License-Identifier: Apache-2.0
// Y = X · Wᵀ (+ bias) for a ragged batch. The first columns of Y are Q and go to `out`; the K and V
// columns go straight into the pages, at position cache_length + i of each sequence. MLA: every
// column after Q is the K row.
//
// Sums, scales and bias are fp32 or better with one rounding at the end. An fp8 or int8 cache with
// scales is quantized per granule (scale = amax / max_finite, written beside the rows), or by the
// user's static scales if they are broadcast; an fp8 cache without scales stores the saturated
// value itself.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/context.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/weight.h"

namespace quire {

struct FusedQkvArgs {
  TensorView x;            // [tokens, hidden] f32, f16, bf16, or fp8 with input_scale
  TensorView row_offsets;  // u32 [batch + 1]
  Weight weight;           // [q_dim + 2 · kv_dim, hidden]; MLA: [q_dim + row, hidden]
  PagedKVCache cache;      // written at the new tokens' rows of `layer`
  std::int64_t layer = 0;
  std::optional<TensorView> bias{};  // [N] f32, or the dtype of out
  // fp8 x: f32 [1, 1] (tensor), [tokens, 1] (token) or [tokens, ceil(hidden/128)] (1×128 block),
  // any strides.
  std::optional<TensorView> input_scale{};
  TensorView out;  // [tokens, q_dim] f32, f16 or bf16; written
};

struct FusedQkvProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t hidden = 0;
  std::int64_t q_dim = 0;
  DType x_dtype = DType::bf16;
  DType out_dtype = DType::bf16;
  WeightFormat weight_format = WeightFormat::dense;
  DType weight_dtype = DType::bf16;
  std::int64_t group_size = 0;
  bool has_zeros = false;
  bool has_perm = false;
  bool has_bias = false;
};

// Checks everything that can be checked on the host and returns the problem; throws Error, writes
// nothing.
FusedQkvProblem validate(const FusedQkvArgs& args);
Plan plan(const FusedQkvProblem& problem, const Context& context = {});
// validate and plan without running.
Plan supports(const FusedQkvArgs& args, const Context& context = {});
void fused_qkv_matmul(const FusedQkvArgs& args, const Context& context = {});

}  // namespace quire
