// SPDX-License-Identifier: Apache-2.0
// The ops that prepare the indexer's rows, and rows that stand for several tokens.
#include "module.h"
#include "quire/ops/compress_keys.h"
#include "quire/ops/quantize_index_queries.h"
#include "quire/ops/store_index_keys.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

ScaleRounding read_rounding(const ArgumentReader& in) {
  const bool power_of_two = in.value<bool>("power_of_two_scale");
  return power_of_two ? ScaleRounding::power_of_two : ScaleRounding::exact;
}

StoreIndexKeysArgs read_store_index_keys(ArgumentReader& in) {
  return {
      .x = in.tensor("x"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("index_cache", Access::write),
      .layer = in.value<std::int64_t>("layer"),
      .norm_weight = in.optional_tensor("norm_weight"),
      .norm_bias = in.optional_tensor("norm_bias"),
      .epsilon = in.value<double>("epsilon"),
      .freqs_cis = in.optional_tensor("freqs_cis"),
      .interleaved = in.value<bool>("interleaved"),
      .hadamard = in.value<bool>("hadamard"),
      .scale_rounding = read_rounding(in),
  };
}

QuantizeIndexQueriesArgs read_quantize_index_queries(ArgumentReader& in) {
  return {
      .q = in.tensor("q"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("index_cache", Access::read),
      .weights = in.optional_tensor("weights"),
      .factor = in.value<double>("factor"),
      .freqs_cis = in.optional_tensor("freqs_cis"),
      .interleaved = in.value<bool>("interleaved"),
      .hadamard = in.value<bool>("hadamard"),
      .scale_rounding = read_rounding(in),
      .out = in.tensor("out", Access::write),
      .q_scale = in.tensor("q_scale", Access::write),
  };
}

CompressKeysArgs read_compress_keys(ArgumentReader& in) {
  return {
      .kv = in.tensor("kv"),
      .gate = in.tensor("gate"),
      .bias = in.tensor("bias"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("cache", Access::write),
      .layer = in.value<std::int64_t>("layer"),
      .gamma = in.tensor("gamma"),
      .freqs_cis = in.tensor("freqs_cis"),
      .epsilon = in.value<double>("epsilon"),
      .state = in.tensor("state", Access::write),
      .state_slots = in.optional_indices("state_slots"),
  };
}

}  // namespace

void bind_index_ops(nb::module_& module) {
  bind_op(module, "store_index_keys", read_store_index_keys, store_index_keys);
  bind_op(module, "compress_keys", read_compress_keys, compress_keys);
  bind_op(module, "quantize_index_queries", read_quantize_index_queries, quantize_index_queries);
}

}  // namespace quire::python
