// SPDX-License-Identifier: Apache-2.0
#include "op.h"
#include "quire/c/sparse.h"
#include "quire/ops/compress_keys.h"
#include "quire/ops/mla_indexer.h"
#include "quire/ops/quantize_index_queries.h"
#include "quire/ops/remap_sparse_indices.h"
#include "quire/ops/sparse_mla.h"
#include "quire/ops/store_index_keys.h"

namespace quire::c {
namespace {

StoreIndexKeysArgs read_store_index_keys(const Reader& in,
                                         const quire_store_index_keys_args& from) {
  in.is_zero("reserved", from.reserved);
  static const StoreIndexKeysArgs defaults{};
  return {
      .x = in.tensor("x", from.x),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .norm_weight = in.optional_tensor("norm_weight", from.norm_weight),
      .norm_bias = in.optional_tensor("norm_bias", from.norm_bias),
      .epsilon = given_or(from.epsilon, defaults.epsilon),
      .freqs_cis = in.optional_tensor("freqs_cis", from.freqs_cis),
      .interleaved = in.flag("interleaved", from.interleaved),
      .hadamard = in.flag("hadamard", from.hadamard),
      .scale_rounding = in.scale_rounding(from.scale_rounding, defaults.scale_rounding),
  };
}

QuantizeIndexQueriesArgs read_quantize_index_queries(
    const Reader& in, const quire_quantize_index_queries_args& from) {
  in.is_zero("reserved", from.reserved);
  static const QuantizeIndexQueriesArgs defaults{};
  return {
      .q = in.tensor("q", from.q),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .weights = in.optional_tensor("weights", from.weights),
      .factor = given_or(from.factor, defaults.factor),
      .freqs_cis = in.optional_tensor("freqs_cis", from.freqs_cis),
      .interleaved = in.flag("interleaved", from.interleaved),
      .hadamard = in.flag("hadamard", from.hadamard),
      .scale_rounding = in.scale_rounding(from.scale_rounding, defaults.scale_rounding),
      .out = in.tensor("out", from.out),
      .q_scale = in.tensor("q_scale", from.q_scale),
  };
}

CompressKeysArgs read_compress_keys(const Reader& in, const quire_compress_keys_args& from) {
  static const CompressKeysArgs defaults{};
  return {
      .kv = in.tensor("kv", from.kv),
      .gate = in.tensor("gate", from.gate),
      .bias = in.tensor("bias", from.bias),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .gamma = in.tensor("gamma", from.gamma),
      .freqs_cis = in.tensor("freqs_cis", from.freqs_cis),
      .epsilon = given_or(from.epsilon, defaults.epsilon),
      .state = in.tensor("state", from.state),
      .state_slots = in.optional_indices("state_slots", from.state_slots),
  };
}

MlaIndexerArgs read_mla_indexer(const Reader& in, const quire_mla_indexer_args& from) {
  in.is_zero("reserved", from.reserved);
  static const MlaIndexerArgs defaults{};
  return {
      .q = in.tensor("q", from.q),
      .q_scale = in.tensor("q_scale", from.q_scale),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .top_k = given_or(from.top_k, defaults.top_k),
      .mask = in.mask(from.mask),
      .out = in.tensor("out", from.out),
      .scores = in.optional_tensor("scores", from.scores),
      .batch_invariant = in.flag("batch_invariant", from.batch_invariant),
      .tokens_per_key = given_or(from.tokens_per_key, defaults.tokens_per_key),
  };
}

SparseExtra read_extra(const Reader& in, const quire_sparse_extra* given) {
  const auto from =
      in.structure<quire_sparse_extra>("extra", given, offsetof(quire_sparse_extra, lengths));
  return {
      .cache = in.cache("extra.cache", from.cache),
      .layer = from.layer,
      .indices = in.tensor("extra", from.indices, "indices"),
      .lengths = in.optional_tensor("extra", from.lengths, "lengths"),
      .tokens_per_row = given_or(from.tokens_per_row, std::int64_t{1}),
  };
}

SparseMlaArgs read_sparse_mla(const Reader& in, const quire_sparse_mla_args& from) {
  in.is_zero("reserved", from.reserved);
  SparseMlaArgs args{
      .q = in.tensor("q", from.q),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .layer = from.layer,
      .indices = in.tensor("indices", from.indices),
      .topk_lengths = in.optional_tensor("topk_lengths", from.topk_lengths),
      .scale = from.scale,
      .sinks = in.optional_tensor("sinks", from.sinks),
      .out = in.tensor("out", from.out),
      .lse = in.optional_tensor("lse", from.lse),
      .batch_invariant = in.flag("batch_invariant", from.batch_invariant),
  };
  if (from.extra != nullptr) args.extra = read_extra(in, from.extra);
  return args;
}

RemapSparseIndicesArgs read_remap(const Reader& in, const quire_remap_sparse_indices_args& from) {
  return {
      .indices = in.tensor("indices", from.indices),
      .row_offsets = in.indices("row_offsets", from.row_offsets),
      .cache = in.cache("cache", from.cache),
      .out = in.tensor("out", from.out),
  };
}

constexpr Op<quire_compress_keys_args, CompressKeysArgs> kCompressKeys(
    "compress_keys", {.required = offsetof(quire_compress_keys_args, state_slots),
                      .read = read_compress_keys,
                      .run = compress_keys});
constexpr Op<quire_store_index_keys_args, StoreIndexKeysArgs> kStoreIndexKeys(
    "store_index_keys", {.required = offsetof(quire_store_index_keys_args, norm_weight),
                         .read = read_store_index_keys,
                         .run = store_index_keys});
constexpr Op<quire_quantize_index_queries_args, QuantizeIndexQueriesArgs> kQuantizeIndexQueries(
    "quantize_index_queries", {.required = offsetof(quire_quantize_index_queries_args, weights),
                               .read = read_quantize_index_queries,
                               .run = quantize_index_queries});
constexpr Op<quire_mla_indexer_args, MlaIndexerArgs> kMlaIndexer(
    "mla_indexer", {.required = offsetof(quire_mla_indexer_args, top_k),
                    .read = read_mla_indexer,
                    .run = mla_indexer});
constexpr Op<quire_sparse_mla_args, SparseMlaArgs> kSparseMla(
    "sparse_mla", {.required = offsetof(quire_sparse_mla_args, topk_lengths),
                   .read = read_sparse_mla,
                   .run = sparse_mla});
constexpr Op<quire_remap_sparse_indices_args, RemapSparseIndicesArgs> kRemapSparseIndices(
    "remap_sparse_indices", {.required = sizeof(quire_remap_sparse_indices_args),
                             .read = read_remap,
                             .run = remap_sparse_indices});

constexpr NumberedOp kOps[] = {
    {QUIRE_OP_STORE_INDEX_KEYS, &kStoreIndexKeys},
    {QUIRE_OP_COMPRESS_KEYS, &kCompressKeys},
    {QUIRE_OP_QUANTIZE_INDEX_QUERIES, &kQuantizeIndexQueries},
    {QUIRE_OP_MLA_INDEXER, &kMlaIndexer},
    {QUIRE_OP_SPARSE_MLA, &kSparseMla},
    {QUIRE_OP_REMAP_SPARSE_INDICES, &kRemapSparseIndices},
};

}  // namespace

std::span<const NumberedOp> sparse_ops() {
  return kOps;
}

}  // namespace quire::c

quire_status quire_compress_keys(const quire_compress_keys_args* args,
                                 const quire_context* context) {
  return quire::c::kCompressKeys.call(args, context);
}
quire_status quire_store_index_keys(const quire_store_index_keys_args* args,
                                    const quire_context* context) {
  return quire::c::kStoreIndexKeys.call(args, context);
}

quire_status quire_quantize_index_queries(const quire_quantize_index_queries_args* args,
                                          const quire_context* context) {
  return quire::c::kQuantizeIndexQueries.call(args, context);
}

quire_status quire_mla_indexer(const quire_mla_indexer_args* args, const quire_context* context) {
  return quire::c::kMlaIndexer.call(args, context);
}

quire_status quire_sparse_mla(const quire_sparse_mla_args* args, const quire_context* context) {
  return quire::c::kSparseMla.call(args, context);
}

quire_status quire_remap_sparse_indices(const quire_remap_sparse_indices_args* args,
                                        const quire_context* context) {
  return quire::c::kRemapSparseIndices.call(args, context);
}
