// SPDX-License-Identifier: Apache-2.0
// The ops that know no cache.
#include "module.h"
#include "quire/ops/merge_states.h"
#include "quire/ops/quantize_fp8.h"
#include "quire/ops/row_offsets.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

MergeStatesArgs read_merge_states(ArgumentReader& in) {
  return {
      .states = in.tensor("states"),
      .lses = in.tensor("lses"),
      .out = in.tensor("out", Access::write),
      .lse = in.optional_tensor("lse", Access::write),
  };
}

QuantizeFp8Args read_quantize_fp8(ArgumentReader& in) {
  const bool power_of_two = in.value<bool>("power_of_two_scale");
  return {
      .x = in.tensor("x"),
      .group_size = in.value<std::int64_t>("group_size"),
      .scale_upper_bound = in.value<double>("scale_upper_bound"),
      .scale_rounding = power_of_two ? ScaleRounding::power_of_two : ScaleRounding::exact,
      .out = in.tensor("out", Access::write),
      .scale = in.tensor("scale", Access::write),
  };
}

RowOffsetsArgs read_row_offsets(ArgumentReader& in) {
  return {
      .row_offsets = in.indices("row_offsets"),
      .cache_lengths = in.indices("cache_lengths"),
      .out = in.indices("out", Access::write),
  };
}

}  // namespace

void bind_dense_ops(nb::module_& module) {
  bind_op(module, "merge_states", read_merge_states, merge_states);
  bind_op(module, "quantize_fp8", read_quantize_fp8, quantize_fp8);
  bind_op(module, "row_offsets", read_row_offsets, row_offsets);
}

}  // namespace quire::python
