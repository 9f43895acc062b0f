// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_qkv_matmul/projection_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/block_format.h"
#include "ops/fused_qkv_matmul/weight_check.h"
#include "ops/memory_span.h"

namespace quire::ops {
namespace {

constexpr std::int64_t kInputBlock = 128;

void check_input_scale(Arguments& check, const Projection& args) {
  if (is_fp8(args.x.dtype) != args.input_scale.has_value()) {
    check.fail("input_scale",
               is_fp8(args.x.dtype) ? "given for an fp8 x" : "absent without an fp8 x",
               args.input_scale.has_value() ? args.input_scale->describe() : "none");
  }
  if (!args.input_scale.has_value()) return;
  const TensorView& scale = *args.input_scale;
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t blocks = ceil_div(args.x.shape[1], kInputBlock);
  const TensorArgument argument = check.tensor("input_scale", scale);
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

void check_activations(const Arguments& check, const Projection& args) {
  if (args.activations == Activations::exact) return;
  const WeightFormat format = args.weight.format;
  if (!takes_int8_activations(format)) {
    check.fail("activations", fmt::format("exact for weights of format {}", name(format)), "int8");
  }
  if (is_fp8(args.x.dtype)) {
    check.fail("activations", "exact for an fp8 x", "int8");
  }
}

void check_bias(Arguments& check, const TensorView& bias, DType out_dtype, std::int64_t rows) {
  const DType dtypes[] = {DType::f32, out_dtype};
  const std::size_t num_dtypes = out_dtype == DType::f32 ? 1 : 2;
  check.tensor("bias", bias).is(std::span(dtypes, num_dtypes), {rows}).has_dense_rows();
}

}  // namespace

void check_input(Arguments& check, const TensorView& x) {
  check.tensor("x", x).is(kFloats, {"tokens", "hidden"}).has_full_rows().has_dense_rows();
}

void check_projection(Arguments& check, const Projection& args, std::int64_t rows) {
  check_weight(check, args.weight, rows, args.x.shape[1]);
  if (args.bias.has_value()) check_bias(check, *args.bias, args.out.dtype, rows);
  check_input_scale(check, args);
  check_activations(check, args);
  check.outputs_do_not_overlap();
}

bool has_block_scales(const Projection& args) {
  if (!args.input_scale.has_value()) return false;
  if (args.input_scale->shape[1] > 1) return true;
  if (!args.weight.scale.has_value()) return false;
  const TensorView& scale = *args.weight.scale;
  return scale.shape[1] > 1 || (scale.shape[0] != 1 && scale.shape[0] != args.weight.rows());
}

std::int64_t projection_alignment(const Projection& args) {
  const std::int64_t least =
      std::min({row_alignment(args.x), row_alignment(args.weight.data), row_alignment(args.out)});
  return args.bias.has_value() ? std::min(least, row_alignment(*args.bias)) : least;
}

}  // namespace quire::ops
