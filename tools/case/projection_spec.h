// SPDX-License-Identifier: Apache-2.0
// What the cases of fused_qkv_matmul and linear share: x, weight, bias, scales and options.
#pragma once

#include <cstdint>
#include <string>

#include "quire/activations.h"
#include "tools/case/case.h"
#include "tools/case/weight_spec.h"

namespace quire::tools {

struct ProjectionSpec {
  explicit ProjectionSpec(const Fields& fields);

  // Builds the tensors of a weight of so many rows, all but out, and sets the options.
  template <typename Args>
  void fill(Memory& memory, std::uint64_t seed, std::int64_t tokens, std::int64_t rows,
            Args& args) const {
    args.x = build_tensor(memory, seed, "x", x_dtype, {tokens, hidden}, amplitude());
    args.weight = build_weight(memory, weight, rows, hidden, seed);
    if (has_bias) args.bias = build_tensor(memory, seed, "bias", bias_dtype, {rows});
    if (input_scale != "none") args.input_scale = build_input_scale(memory, seed, tokens);
    args.activations = activations;
    args.allow_fast_accum = allow_fast_accum;
    args.allow_tf32 = allow_tf32;
    args.batch_invariant = batch_invariant;
  }

  double flops(std::int64_t tokens, std::int64_t rows) const {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(rows) *
           static_cast<double>(hidden);
  }
  Products products() const;

  std::int64_t hidden;
  DType x_dtype;
  DType out_dtype;
  WeightSpec weight;
  bool has_bias;
  DType bias_dtype;
  std::string input_scale;  // "none", "tensor", "token" or "block"
  bool is_packed;
  Activations activations;
  bool allow_fast_accum;
  bool allow_tf32;
  bool batch_invariant;

 private:
  double amplitude() const { return is_fp8(x_dtype) ? 60.0 : 1.0; }
  TensorView build_input_scale(Memory& memory, std::uint64_t seed, std::int64_t tokens) const;
};

}  // namespace quire::tools
