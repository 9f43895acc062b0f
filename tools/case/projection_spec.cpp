// SPDX-License-Identifier: Apache-2.0
#include "tools/case/projection_spec.h"

namespace quire::tools {

ProjectionSpec::ProjectionSpec(const Fields& fields)
    : hidden(fields.integer("hidden", 1)),
      x_dtype(fields.dtype("x_dtype",
                           {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2},
                           DType::bf16)),
      out_dtype(fields.dtype("out_dtype", {DType::f32, DType::f16, DType::bf16},
                             is_fp8(x_dtype) ? DType::bf16 : x_dtype)),
      weight(read_weight(fields)),
      has_bias(fields.flag("bias", false)),
      bias_dtype(fields.dtype("bias_dtype", {DType::f32, DType::f16, DType::bf16}, DType::f32)),
      input_scale(fields.choice("input_scale", {"none", "tensor", "token", "block"},
                                is_fp8(x_dtype) ? "tensor" : "none")),
      is_packed(fields.flag("packed", false)),
      activations(fields.choice("activations", {"exact", "int8"}, "exact") == "int8"
                      ? Activations::int8
                      : Activations::exact),
      allow_fast_accum(fields.flag("allow_fast_accum", false)),
      allow_tf32(fields.flag("allow_tf32", false)),
      batch_invariant(fields.flag("batch_invariant", false)) {}

Products ProjectionSpec::products() const {
  const bool has_integers =
      weight.format != WeightFormat::dense && weight.format != WeightFormat::fp8;
  return has_integers ? Products::int8 : products_of(x_dtype);
}

TensorView ProjectionSpec::build_input_scale(Memory& memory, std::uint64_t seed,
                                             std::int64_t tokens) const {
  const std::int64_t rows = input_scale == "tensor" ? 1 : tokens;
  const std::int64_t columns = input_scale == "block" ? (hidden + 127) / 128 : 1;
  return build_tensor(memory, seed, "input_scale", DType::f32, {rows, columns}, 0.1 / amplitude(),
                      1.0 / amplitude());
}

}  // namespace quire::tools
