// SPDX-License-Identifier: Apache-2.0
// What fused_qkv_matmul and linear ask of their arguments alike.
#pragma once

#include <cstdint>

#include "core/projection.h"
#include "ops/argument.h"

namespace quire::ops {

// x [tokens, hidden].
void check_input(Arguments& check, const TensorView& x);
// Weight, bias, input_scale and activations, once x and out were checked; `rows`: that the weight should have. And that
// no output lies over another argument.
void check_projection(Arguments& check, const Projection& args, std::int64_t rows);

// Of x or of a weight that is not packed, for every 128 of K (or of rows).
bool has_block_scales(const Projection& args);
// Of the rows of x, weight, out and bias.
std::int64_t projection_alignment(const Projection& args);

// The fields that FusedQkvProblem and LinearProblem share, of valid arguments.
template <typename Problem> void describe_projection(const Projection& args, Problem& problem) {
  const Weight& weight = args.weight;
  const bool is_packed = weight.packing != WeightPacking::none;
  problem.device = args.x.device;
  problem.hidden = args.x.shape[1];
  problem.x_dtype = args.x.dtype;
  problem.out_dtype = args.out.dtype;
  problem.weight_format = weight.format;
  problem.weight_dtype = is_packed ? weight.packed.dtype : weight.data.dtype;
  problem.weight_packing = weight.packing;
  problem.group_size = weight.group_size;
  problem.has_block_scales = has_block_scales(args);
  problem.has_zeros = is_packed ? weight.packed.has_zeros : weight.zeros.has_value();
  problem.has_perm = weight.perm.has_value();
  problem.has_bias = args.bias.has_value();
  problem.activations = args.activations;
  problem.allow_fast_accum = args.allow_fast_accum && !args.batch_invariant;
  problem.allow_tf32 = args.allow_tf32;
  problem.batch_invariant = args.batch_invariant;
  problem.alignment = projection_alignment(args);
}

}  // namespace quire::ops
