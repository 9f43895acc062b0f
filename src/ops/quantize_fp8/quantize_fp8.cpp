// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cpu/quantize_fp8/quantize_fp8.h"
#include "cuda/kernels.h"
#include "ops/argument.h"
#include "ops/dispatch.h"
#include "ops/memory_span.h"
#include "quire/ops/quantize_fp8.h"
#include "reference/quantize_fp8.h"

namespace quire {
namespace {

constexpr DType kScaleTypes[] = {DType::f32, DType::e8m0};

const ops::Dispatch<QuantizeFp8Problem, QuantizeFp8Args>& dispatch() {
  static const ops::Dispatch<QuantizeFp8Problem, QuantizeFp8Args> table(
      "quantize_fp8",
      {
          .cuda = cuda::quantize_fp8_kernels(),
          .run_on_cpu = cpu::quantize_fp8,
          .run_reference = [](const QuantizeFp8Args& args) { reference::quantize_fp8(args); },
      });
  return table;
}

}  // namespace

QuantizeFp8Problem validate(const QuantizeFp8Args& args) {
  ops::Arguments check("quantize_fp8");
  check.tensor("x", args.x)
      .is(ops::kActivations, {"rows", "columns"})
      .has_full_rows()
      .has_dense_rows();
  const std::int64_t rows = args.x.shape[0];
  const std::int64_t columns = args.x.shape[1];
  if (args.group_size < 1 && args.group_size != -1) {
    check.fail("group_size", "at least 1, or -1 for the whole row",
               std::to_string(args.group_size));
  }
  if (!(args.scale_upper_bound > 0.0)) {
    check.fail("scale_upper_bound", "positive", fmt::format("{}", args.scale_upper_bound));
  }
  const std::int64_t group_size = args.group_size == -1 ? columns : args.group_size;
  check.tensor("out", args.out).is(ops::kFp8Types, {rows, columns}).has_dense_rows().is_written();
  check.tensor("scale", args.scale)
      .is(kScaleTypes, {rows, ops::ceil_div(columns, group_size)})
      .is_written();
  if (args.scale.dtype == DType::e8m0 && args.scale_rounding != ScaleRounding::power_of_two) {
    check.fail_type("scale", "f32 where scales are no powers of two", args.scale.describe());
  }
  check.outputs_do_not_overlap();
  return {.device = check.device(),
          .rows = rows,
          .columns = columns,
          .group_size = group_size,
          .x_dtype = args.x.dtype,
          .out_dtype = args.out.dtype,
          .scale_dtype = args.scale.dtype,
          .scale_rounding = args.scale_rounding};
}

Prepared<QuantizeFp8Problem> prepare(const QuantizeFp8Problem& problem, const Context& context) {
  return dispatch().prepare("quantize_fp8", problem, context);
}

Plan plan(const QuantizeFp8Problem& problem, const Context& context) {
  return prepare(problem, context).plan();
}

Plan supports(const QuantizeFp8Args& args, const Context& context) {
  return plan(validate(args), context);
}

void run(const Prepared<QuantizeFp8Problem>& prepared, const QuantizeFp8Args& args,
         const Context& context) {
  dispatch().run_checked(prepared, validate(args), args, context);
}

void quantize_fp8(const QuantizeFp8Args& args, const Context& context) {
  dispatch().run(prepare(validate(args), context), args, context);
}

}  // namespace quire
