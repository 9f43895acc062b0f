// SPDX-License-Identifier: Apache-2.0
// Attention over the cache, the indexer, and the plan of a chunked prefill.
#include "module.h"
#include "quire/ops/flash_attention.h"
#include "quire/ops/mla_decode.h"
#include "quire/ops/mla_indexer.h"
#include "quire/ops/mla_prefill.h"
#include "quire/ops/select_blocks.h"
#include "quire/ops/sparse_mla.h"

namespace nb = nanobind;

namespace quire::python {
namespace {

FlashAttentionArgs read_flash_attention(ArgumentReader& in) {
  const bool is_ragged = in.find("cache").is_none() && !in.find("k").is_none();
  return {
      .q = in.tensor("q"),
      .row_offsets = in.indices("row_offsets"),
      .cache = is_ragged ? PagedKVCache{} : in.cache("cache", Access::read),
      .layer = in.value<std::int64_t>("layer"),
      .scale = in.optional_value<double>("scale"),
      .mask = in.mask("mask"),
      .softcap = in.value<double>("softcap"),
      .alibi_slopes = in.optional_tensor("alibi_slopes"),
      .sinks = in.optional_tensor("sinks"),
      .out = in.tensor("out", Access::write),
      .lse = in.optional_tensor("lse", Access::write),
      .batch_invariant = in.value<bool>("batch_invariant"),
      .allow_fp8_products = in.value<bool>("allow_fp8_products"),
      .shared_prefix_pages = in.value<std::int64_t>("shared_prefix_pages"),
      .max_workspace_bytes = in.value<std::int64_t>("max_workspace_bytes"),
      .key_lengths = in.optional_indices("key_lengths"),
      .k = in.optional_tensor("k"),
      .v = in.optional_tensor("v"),
      .key_offsets = in.optional_indices("key_offsets"),
      .key_blocks = in.optional_tensor("key_blocks"),
      .key_block_size = in.value<std::int64_t>("key_block_size"),
  };
}

// Rows that the op finishes are written; finished rows are only read.
Access row_access(const ArgumentReader& in) {
  return in.find("kv_norm_gamma").is_none() && in.find("kv").is_none() ? Access::read
                                                                       : Access::write;
}

MlaPrefillPlanArgs read_mla_prefill_plan(ArgumentReader& in) {
  return {
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("cache", Access::read),
      .layer = in.value<std::int64_t>("layer"),
      .chunks = in.chunks("chunks", Access::write),
  };
}

MlaPrefillArgs read_mla_prefill(ArgumentReader& in) {
  const bool rotates_q = !in.find("freqs_cis").is_none();
  return {
      .q = in.tensor("q", rotates_q ? Access::write : Access::read),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("cache", row_access(in)),
      .layer = in.value<std::int64_t>("layer"),
      .freqs_cis = in.optional_tensor("freqs_cis"),
      .kv_norm_gamma = in.optional_tensor("kv_norm_gamma"),
      .kv = in.optional_tensor("kv"),
      .kv_b_proj = in.tensor("kv_b_proj"),
      .kv_b_proj_scale = in.optional_tensor("kv_b_proj_scale"),
      .scale = in.value<double>("scale"),
      .epsilon = in.value<double>("epsilon"),
      .chunks = in.chunks("plan", Access::read),
      .mask = in.mask("mask"),
      .softcap = in.value<double>("softcap"),
      .alibi_slopes = in.optional_tensor("alibi_slopes"),
      .sinks = in.optional_tensor("sinks"),
      .out = in.tensor("out", Access::write),
      .lse = in.optional_tensor("lse", Access::write),
      .allow_fp8_products = in.value<bool>("allow_fp8_products"),
      .batch_invariant = in.value<bool>("batch_invariant"),
  };
}

MlaDecodeArgs read_mla_decode(ArgumentReader& in) {
  return {
      .q = in.tensor("q"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("cache", row_access(in)),
      .layer = in.value<std::int64_t>("layer"),
      .freqs_cis = in.optional_tensor("freqs_cis"),
      .kv_norm_gamma = in.optional_tensor("kv_norm_gamma"),
      .kv = in.optional_tensor("kv"),
      .w_uk = in.optional_tensor("w_uk"),
      .w_uk_scale = in.optional_tensor("w_uk_scale"),
      .w_uv = in.optional_tensor("w_uv"),
      .w_uv_scale = in.optional_tensor("w_uv_scale"),
      .scale = in.value<double>("scale"),
      .epsilon = in.value<double>("epsilon"),
      .mask = in.mask("mask"),
      .sinks = in.optional_tensor("sinks"),
      .out = in.tensor("out", Access::write),
      .lse = in.optional_tensor("lse", Access::write),
      .batch_invariant = in.value<bool>("batch_invariant"),
      .allow_fp8_products = in.value<bool>("allow_fp8_products"),
      .key_lengths = in.optional_indices("key_lengths"),
  };
}

MlaIndexerArgs read_mla_indexer(ArgumentReader& in) {
  return {
      .q = in.tensor("q"),
      .q_scale = in.tensor("q_scale"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("index_cache", Access::read),
      .layer = in.value<std::int64_t>("layer"),
      .top_k = in.value<std::int64_t>("top_k"),
      .mask = in.mask("mask"),
      .out = in.tensor("out", Access::write),
      .scores = in.optional_tensor("scores", Access::write),
      .batch_invariant = in.value<bool>("batch_invariant"),
      .tokens_per_key = in.value<std::int64_t>("tokens_per_key"),
  };
}

SelectBlocksArgs read_select_blocks(ArgumentReader& in) {
  return {
      .q = in.tensor("q"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("cache", Access::read),
      .layer = in.value<std::int64_t>("layer"),
      .block_size = in.value<std::int64_t>("block_size"),
      .first_blocks = in.value<std::int64_t>("first_blocks"),
      .local_blocks = in.value<std::int64_t>("local_blocks"),
      .mask = in.mask("mask"),
      .out = in.tensor("out", Access::write),
  };
}

SparseMlaArgs read_sparse_mla(ArgumentReader& in) {
  SparseMlaArgs args{
      .q = in.tensor("q"),
      .row_offsets = in.indices("row_offsets"),
      .cache = in.cache("cache", Access::read),
      .layer = in.value<std::int64_t>("layer"),
      .indices = in.tensor("indices"),
      .topk_lengths = in.optional_tensor("topk_lengths"),
      .scale = in.value<double>("scale"),
      .sinks = in.optional_tensor("sinks"),
      .out = in.tensor("out", Access::write),
      .lse = in.optional_tensor("lse", Access::write),
      .batch_invariant = in.value<bool>("batch_invariant"),
  };
  if (in.is_given("extra.cache")) {  // a SparseExtra was; None inside it is an error
    args.extra = SparseExtra{
        .cache = in.cache("extra.cache", Access::read),
        .layer = in.value<std::int64_t>("extra.layer"),
        .indices = in.tensor("extra.indices"),
        .lengths = in.optional_tensor("extra.lengths"),
        .tokens_per_row = in.value<std::int64_t>("extra.tokens_per_row"),
    };
  }
  return args;
}

std::int64_t num_chunks(const nb::kwargs& arguments) {
  const char* op = "mla_prefill_plan";  // whose question it is
  ArgumentReader in(op, arguments, nullptr);
  const TensorView row_offsets = in.indices("row_offsets");
  const PagedKVCache cache = in.cache("cache", Access::read);
  try {
    return mla_prefill_num_chunks(row_offsets, cache, in.value<std::int64_t>("buffer_tokens"),
                                  in.value<std::int64_t>("decode_tokens"));
  } catch (const Error& error) {
    throw Error(error.code(), op, error.argument(), error.expected(), error.actual());
  }
}

// Only the checks: Python slices the views in the caller's framework.
void check_absorb(const nb::kwargs& arguments) {
  ArgumentReader in("absorb_kv_b_proj", arguments, nullptr);
  absorb_kv_b_proj(in.tensor("kv_b_proj"), in.value<std::int64_t>("heads"),
                   in.value<std::int64_t>("nope"), in.optional_tensor("kv_b_proj_scale"));
}

std::string describe_mask(const nb::kwargs& arguments) {
  return ArgumentReader("mask", arguments, nullptr).mask("mask").describe();
}

}  // namespace

void bind_attention_ops(nb::module_& module) {
  bind_op(module, "flash_attention", read_flash_attention, flash_attention);
  bind_op(module, "mla_prefill_plan", read_mla_prefill_plan, mla_prefill_plan);
  bind_op(module, "mla_prefill", read_mla_prefill, mla_prefill);
  bind_op(module, "mla_decode", read_mla_decode, mla_decode);
  bind_op(module, "mla_indexer", read_mla_indexer, mla_indexer);
  bind_op(module, "select_blocks", read_select_blocks, select_blocks);
  bind_op(module, "sparse_mla", read_sparse_mla, sparse_mla);
  module.def("mla_prefill_num_chunks", num_chunks);
  module.def("check_absorb_kv_b_proj", check_absorb);
  module.def("describe_mask", describe_mask);
}

}  // namespace quire::python
