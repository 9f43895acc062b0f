// SPDX-License-Identifier: Apache-2.0
// The ops that write rows of the cache.
#include "module.h"
#include "quire/ops/copy_pages.h"
#include "quire/ops/remap_sparse_indices.h"
#include "quire/ops/rms_norm.h"
#include "quire/ops/rope.h"
#include "quire/ops/store.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

RopeArgs read_rope(ArgumentReader& in) {
  const bool rotate_key = in.value<bool>("rotate_key");
  return {
      .q = in.tensor("q"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("cache", rotate_key ? Access::write : Access::read),
      .layer = in.value<std::int64_t>("layer"),
      .freqs_cis = in.tensor("freqs_cis"),
      .interleaved = in.value<bool>("interleaved"),
      .inverse = in.value<bool>("inverse"),
      .position_ids = in.optional_indices("position_ids"),
      .mrope_sections = in.whole_numbers("mrope_sections"),
      .rotate_key = rotate_key,
      .q_gamma = in.optional_tensor("q_gamma"),
      .key_gamma = in.optional_tensor("key_gamma"),
      .epsilon = in.value<double>("epsilon"),
      .weight_offset = in.value<double>("weight_offset"),
      .out = in.tensor("out", Access::write),
  };
}

template <KvSide kSide> RmsNormArgs read_rms_norm(ArgumentReader& in) {
  return {
      .cache = in.cache("cache", Access::write),
      .layer = in.value<std::int64_t>("layer"),
      .side = kSide,
      .row_offsets = in.indices("row_offsets"),
      .gamma = in.tensor("gamma"),
      .epsilon = in.value<double>("epsilon"),
      .weight_offset = in.value<double>("weight_offset"),
      .per_head = in.value<bool>("per_head"),
      .multiply_before_cast = in.value<bool>("multiply_before_cast"),
  };
}

StoreArgs read_store(ArgumentReader& in) {
  return {
      .x = in.tensor("x"),
      .row_offsets = in.optional_indices("row_offsets").value_or(TensorView{}),
      .cache = in.cache("cache", Access::write),
      .layer = in.value<std::int64_t>("layer"),
      .side = in.side(),
      .value = in.optional_tensor("value"),
      .slots = in.optional_tensor("slots"),
  };
}

StoreScalesArgs read_store_scales(ArgumentReader& in) {
  return {
      .scales = in.tensor("scales"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("cache", Access::write),
      .layer = in.value<std::int64_t>("layer"),
      .side = in.side(),
  };
}

CopyPagesArgs read_copy_pages(ArgumentReader& in) {
  return {
      .cache = in.cache("cache", Access::write),
      .pairs = in.indices("pairs"),
  };
}

RemapSparseIndicesArgs read_remap(ArgumentReader& in) {
  return {
      .indices = in.tensor("indices"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("cache", Access::read),
      .out = in.tensor("out", Access::write),
  };
}

void run_rms_norm_key(const RmsNormArgs& args, const Context& context) {
  rms_norm_key(args, context);
}
void run_rms_norm_value(const RmsNormArgs& args, const Context& context) {
  rms_norm_value(args, context);
}

}  // namespace

void bind_cache_ops(nb::module_& module) {
  bind_op(module, "rope", read_rope, rope);
  bind_op(module, "rms_norm_key", read_rms_norm<KvSide::key>, run_rms_norm_key);
  bind_op(module, "rms_norm_value", read_rms_norm<KvSide::value>, run_rms_norm_value);
  bind_op(module, "store", read_store, store);
  bind_op(module, "store_scales", read_store_scales, store_scales);
  bind_op(module, "copy_pages", read_copy_pages, copy_pages);
  bind_op(module, "remap_sparse_indices", read_remap, remap_sparse_indices);
}

}  // namespace quire::python
