// SPDX-License-Identifier: Apache-2.0
// Y = X · Wᵀ (+ bias) for a ragged batch. The first columns of Y are Q and go to `out`; the K and V
// columns go straight into the pages, at position cache_length + i of each sequence. MLA: every
// column after Q is the K row.
//
// Sums, scales and bias are fp32 or better with one rounding at the end. An fp8 or int8 cache with
// scales is quantized per granule (scale = amax / max_finite, written beside the rows), or by the
// user's scales if they are static (PagedKVCache::static_scales); an fp8 cache without scales stores the saturated
// value itself.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/activations.h"
#include "quire/context.h"
#include "quire/export.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"
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
  // [tokens, q_dim] f32, f16 or bf16; written. q_dim may be 0: K and V alone.
  TensorView out;
  Activations activations = Activations::exact;
  // fp8 with scales per tensor, token or channel: the tensor cores may add up all of K by themselves. Faster
  // with many tokens, but every product loses what lies 13 bits below the sum: where all have one sign, a sum
  // over 8192 comes out an eighth too small. Backends without a faster way ignore it.
  bool allow_fast_accum = false;
  // Where x and a dense weight are f32, lets a kernel round both to tf32 (a significand of 11 bits) and multiply
  // on tensor cores: results are some 2^-12 of the products' size off.
  bool allow_tf32 = false;
  // A token's result is the same bits whatever the number of tokens: allow_fast_accum is ignored, and only kernels that
  // add up K in one order are chosen.
  bool batch_invariant = false;
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
  // Largest power of two up to 128 that divides, in bytes, the start and the row strides of x, weight,
  // out, bias and the cache.
  std::int64_t alignment = 1;

  bool operator==(const FusedQkvProblem&) const = default;
};

// Checks everything that can be checked on the host and returns the problem; throws Error, writes
// nothing.
QUIRE_API FusedQkvProblem validate(const FusedQkvArgs& args);
QUIRE_API Plan plan(const FusedQkvProblem& problem, const Context& context = {});
QUIRE_API Prepared<FusedQkvProblem> prepare(const FusedQkvProblem& problem,
                                            const Context& context = {});
// validate and plan without running.
QUIRE_API Plan supports(const FusedQkvArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<FusedQkvProblem>& prepared, const FusedQkvArgs& args,
                   const Context& context = {});
QUIRE_API void fused_qkv_matmul(const FusedQkvArgs& args, const Context& context = {});

}  // namespace quire
