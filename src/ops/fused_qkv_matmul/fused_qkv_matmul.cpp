// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/block_format.h"
#include "cpu/fused_qkv_matmul/fused_qkv_matmul.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/cache_check.h"
#include "ops/dispatch.h"
#include "ops/fused_qkv_matmul/weight_check.h"
#include "ops/memory_span.h"
#include "quire/ops/fused_qkv_matmul.h"
#include "reference/fused_qkv_matmul.h"

namespace quire {
namespace {

using ops::Arguments;

constexpr std::int64_t kInputBlock = 128;

void check_input_scale(Arguments& check, const FusedQkvArgs& args) {
  if (is_fp8(args.x.dtype) != args.input_scale.has_value()) {
    check.fail("input_scale",
               is_fp8(args.x.dtype) ? "given for an fp8 x" : "absent without an fp8 x",
               args.input_scale.has_value() ? args.input_scale->describe() : "none");
  }
  if (!args.input_scale.has_value()) return;
  const TensorView& scale = *args.input_scale;
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t blocks = ops::ceil_div(args.x.shape[1], kInputBlock);
  const ops::TensorArgument argument = check.tensor("input_scale", scale);
  argument.is(DType::f32, {"rows", "columns"});
  const bool per_tensor = scale.shape[0] == 1 && scale.shape[1] == 1;
  const bool per_token =
      scale.shape[0] == tokens && (scale.shape[1] == 1 || scale.shape[1] == blocks);
  if (!per_tensor && !per_token) {
    check.fail("input_scale",
               fmt::format("f32[1, 1], f32[{}, 1] or f32[{}, {}]", tokens, tokens, blocks),
               scale.describe());
  }
  argument.is_finite();
}

// Of x or of a weight that is not packed, for every 128 of K (or of rows).
bool has_block_scales(const FusedQkvArgs& args) {
  if (!args.input_scale.has_value()) return false;
  if (args.input_scale->shape[1] > 1) return true;
  if (!args.weight.scale.has_value()) return false;
  const TensorView& scale = *args.weight.scale;
  return scale.shape[1] > 1 || (scale.shape[0] != 1 && scale.shape[0] != args.weight.rows());
}

void check_activations(const Arguments& check, const FusedQkvArgs& args) {
  if (args.activations == Activations::exact) return;
  const WeightFormat format = args.weight.format;
  if (!takes_int8_activations(format)) {
    check.fail("activations", fmt::format("exact for weights of format {}", name(format)), "int8");
  }
  if (is_fp8(args.x.dtype)) {
    check.fail("activations", "exact for an fp8 x", "int8");
  }
}

// Columns of Y after Q: K and V of every head, or the one MLA row.
std::int64_t check_kv_columns(const Arguments& check, const ops::PagedBatch& batch) {
  if (batch.cache.is_mla && batch.cache.num_kv_heads != 1) {
    check.fail("cache.blocks", "of one head for an MLA cache",
               fmt::format("{} heads", batch.cache.num_kv_heads));
  }
  return (batch.cache.is_mla ? 1 : 2) * batch.cache.num_kv_heads * batch.head_dim();
}

void check_bias(Arguments& check, const TensorView& bias, DType out_dtype, std::int64_t rows) {
  const DType dtypes[] = {DType::f32, out_dtype};
  const std::size_t num_dtypes = out_dtype == DType::f32 ? 1 : 2;
  check.tensor("bias", bias).is(std::span(dtypes, num_dtypes), {rows}).has_dense_rows();
}

std::int64_t alignment_of(const FusedQkvArgs& args) {
  std::int64_t least = std::min({ops::row_alignment(args.x), ops::row_alignment(args.weight.data),
                                 ops::row_alignment(args.out), ops::cache_alignment(args.cache)});
  if (args.bias.has_value()) least = std::min(least, ops::row_alignment(*args.bias));
  return least;
}

const ops::Dispatch<FusedQkvProblem, FusedQkvArgs>& dispatch() {
  static const ops::Dispatch<FusedQkvProblem, FusedQkvArgs> table(
      "fused_qkv_matmul",
      {
          .cuda = cuda::fused_qkv_matmul_kernels(),
          .refuse_on_cpu = cpu::refuse,
          .run_on_cpu = cpu::fused_qkv_matmul,
          .run_reference = [](const FusedQkvArgs& args) { reference::fused_qkv_matmul(args); },
          .refuse_reference = [](const FusedQkvProblem& problem) -> std::string {
            if (problem.weight_packing == WeightPacking::none) return "";
            return fmt::format("the weight is packed as {}, the reference reads plain weights",
                               name(problem.weight_packing));
          },
      });
  return table;
}

}  // namespace

FusedQkvProblem validate(const FusedQkvArgs& args) {
  Arguments check("fused_qkv_matmul");
  check.tensor("x", args.x).is(ops::kFloats, {"tokens", "hidden"}).has_full_rows().has_dense_rows();
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t hidden = args.x.shape[1];
  const ops::CacheUse use{
      .layer = args.layer, .sides = ops::CacheSides::all, .access = ops::CacheAccess::write};
  const ops::PagedBatch batch = ops::check_batch(check, args.cache, use, args.row_offsets, tokens);
  check.tensor("out", args.out)
      .is(ops::kActivations, {tokens, "q_dim"})
      .has_dense_rows()
      .is_written();
  const std::int64_t rows = args.out.shape[1] + check_kv_columns(check, batch);
  ops::check_weight(check, args.weight, rows, hidden);
  if (args.bias.has_value()) check_bias(check, *args.bias, args.out.dtype, rows);
  check_input_scale(check, args);
  check_activations(check, args);
  check.outputs_do_not_overlap();
  const bool is_packed = args.weight.packing != WeightPacking::none;
  return {.device = check.device(),
          .ragged = batch.ragged,
          .cache = batch.cache,
          .hidden = hidden,
          .q_dim = args.out.shape[1],
          .x_dtype = args.x.dtype,
          .out_dtype = args.out.dtype,
          .weight_format = args.weight.format,
          .weight_dtype = is_packed ? args.weight.packed.dtype : args.weight.data.dtype,
          .weight_packing = args.weight.packing,
          .group_size = args.weight.group_size,
          .has_block_scales = has_block_scales(args),
          .has_zeros = is_packed ? args.weight.packed.has_zeros : args.weight.zeros.has_value(),
          .has_perm = args.weight.perm.has_value(),
          .has_bias = args.bias.has_value(),
          .activations = args.activations,
          .allow_fast_accum = args.allow_fast_accum && !args.batch_invariant,
          .allow_tf32 = args.allow_tf32,
          .batch_invariant = args.batch_invariant,
          .alignment = alignment_of(args)};
}

Prepared<FusedQkvProblem> prepare(const FusedQkvProblem& problem, const Context& context) {
  return dispatch().prepare("fused_qkv_matmul", problem, context);
}

Plan plan(const FusedQkvProblem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const FusedQkvArgs& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<FusedQkvProblem>& prepared, const FusedQkvArgs& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void fused_qkv_matmul(const FusedQkvArgs& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
