// SPDX-License-Identifier: Apache-2.0
// Batches without tokens, or without sequences, are valid and run to nothing.
#include <gtest/gtest.h>

#include "ops/sample_attention.h"
#include "ops/sample_cache_ops.h"
#include "ops/sample_index_rows.h"
#include "ops/sample_latent.h"
#include "ops/sample_linear.h"
#include "ops/sample_qkv.h"
#include "ops/sample_row_ops.h"

namespace quire::test {
namespace {

// The sample without sequences: every tensor whose sizes are the batch or the tokens is empty.
template <typename S> void make_empty_batch(S& sample) {
  sample.args.row_offsets = sample.arena.of(DType::u32, {1}, {0});
  sample.args.cache.cache_lengths = TensorView::contiguous(nullptr, DType::u32, {0});
  sample.args.cache.page_table = TensorView::contiguous(nullptr, DType::u32, {0, 3});
}

void empty_rows(TensorView& view, int dim = 0) {
  view.shape[dim] = 0;
  view.data = nullptr;
}

// Both sequences stay, without new tokens.
template <typename S> void make_no_tokens(S& sample) {
  sample.args.row_offsets = sample.arena.of(DType::u32, {3}, {0, 0, 0});
}

template <typename S> void expect_nothing_written(S& sample) {
  const Arena::Snapshot before = sample.arena.snapshot();
  ASSERT_NO_THROW(sample.run({}));
  EXPECT_TRUE(before == sample.arena.snapshot());
}

TEST(EmptyTest, FlashAttentionOfNoTokensAndOfNoSequences) {
  FlashAttentionSample sample;
  make_no_tokens(sample);
  empty_rows(sample.args.q);
  empty_rows(sample.args.out);
  empty_rows(*sample.args.lse);
  expect_nothing_written(sample);
  make_empty_batch(sample);
  expect_nothing_written(sample);
}

TEST(EmptyTest, FusedQkvOfNoTokensAndOfNoSequences) {
  FusedQkvSample sample;
  make_no_tokens(sample);
  empty_rows(sample.args.x);
  empty_rows(sample.args.out);
  expect_nothing_written(sample);
  make_empty_batch(sample);
  expect_nothing_written(sample);
}

TEST(EmptyTest, LinearOfNoTokensAndOfNoColumns) {
  LinearSample tokens;
  empty_rows(tokens.args.x);
  empty_rows(tokens.args.out);
  expect_nothing_written(tokens);

  LinearSample columns;
  empty_rows(columns.args.weight.data);
  empty_rows(columns.args.out, 1);
  empty_rows(*columns.args.bias);
  expect_nothing_written(columns);
}

TEST(EmptyTest, MlaPrefillOfNoTokensAndOfNoSequences) {
  MlaPrefillSample sample;
  make_no_tokens(sample);
  empty_rows(sample.args.q);
  empty_rows(sample.args.out);
  empty_rows(*sample.args.lse);
  expect_nothing_written(sample);
  make_empty_batch(sample);
  sample.args.chunks.buffer_row_offsets.shape[1] = 1;
  sample.args.chunks.cache_offsets.shape[1] = 1;
  sample.args.chunks.buffer_lengths = sample.arena.filled(DType::i32, {3}, 0);
  expect_nothing_written(sample);
}

TEST(EmptyTest, MlaDecodeIndexerAndSparseMla) {
  MlaDecodeSample decode;
  make_no_tokens(decode);
  empty_rows(decode.args.q);
  empty_rows(decode.args.out);
  empty_rows(*decode.args.lse);
  expect_nothing_written(decode);

  MlaIndexerSample indexer;
  make_no_tokens(indexer);
  empty_rows(indexer.args.q);
  empty_rows(indexer.args.q_scale);
  empty_rows(indexer.args.out);
  empty_rows(*indexer.args.scores);
  expect_nothing_written(indexer);

  SparseMlaSample sparse;
  make_no_tokens(sparse);
  for (TensorView* view : {&sparse.args.q, &sparse.args.indices, &*sparse.args.topk_lengths,
                           &sparse.args.extra->indices, &*sparse.args.extra->lengths,
                           &sparse.args.out, &*sparse.args.lse}) {
    empty_rows(*view);
  }
  expect_nothing_written(sparse);
}

TEST(EmptyTest, Companions) {
  RopeSample rope;
  make_no_tokens(rope);
  empty_rows(rope.args.q);
  empty_rows(rope.args.out);
  expect_nothing_written(rope);

  RmsNormKeySample norm;
  make_no_tokens(norm);
  expect_nothing_written(norm);
  make_empty_batch(norm);
  expect_nothing_written(norm);

  StoreSample store;
  make_no_tokens(store);
  empty_rows(store.args.x);
  expect_nothing_written(store);

  RemapSparseIndicesSample remap;
  make_no_tokens(remap);
  empty_rows(remap.args.indices);
  empty_rows(remap.args.out);
  expect_nothing_written(remap);

  MergeStatesSample merge;
  empty_rows(merge.args.states, 1);
  empty_rows(merge.args.lses, 1);
  empty_rows(merge.args.out);
  empty_rows(*merge.args.lse);
  expect_nothing_written(merge);

  StoreIndexKeysSample keys;
  make_no_tokens(keys);
  empty_rows(keys.args.x);
  expect_nothing_written(keys);

  QuantizeIndexQueriesSample queries;
  make_no_tokens(queries);
  empty_rows(queries.args.q);
  empty_rows(*queries.args.weights);
  empty_rows(queries.args.out);
  empty_rows(queries.args.q_scale);
  expect_nothing_written(queries);

  QuantizeFp8Sample quantize;
  empty_rows(quantize.args.x);
  empty_rows(quantize.args.out);
  empty_rows(quantize.args.scale);
  expect_nothing_written(quantize);
}

TEST(EmptyTest, RowOffsetsOfNoSequencesIsOneZero) {
  RowOffsetsSample sample;
  sample.args.row_offsets = sample.arena.of(DType::u32, {1}, {0});
  empty_rows(sample.args.cache_lengths);
  sample.args.out.shape[0] = 1;
  sample.run({});
  EXPECT_EQ(sample.args.out.load({0}), 0.0);
}

}  // namespace
}  // namespace quire::test
