// SPDX-License-Identifier: Apache-2.0
// Latent attention three ways: the absorbed form against loops, chosen rows that are all of them, and the fused prefill
// against the form with weights that absorb_kv_b_proj cuts out of the same projection.
#include <stddef.h>
#include <stdlib.h>

#include "testing.h"
#include "tests.h"

enum {
  HEADS = 2,
  LATENT = 16,
  ROPE = 8,
  ROW = LATENT + ROPE,
  NOPE = 4,
  VALUE = 6,
  KEYS = 6,
  CHUNK = 8
};
static const double kScale = 0.3;

static void expect_absorbed(const batch* over, const float* q, const float* out) {
  for (int token = 0; token < TOKENS; ++token) {
    const float* rows[KEYS];
    const int count = position_of(over, token) + 1;
    for (int t = 0; t < count; ++t) rows[t] = row_at(over, 0, sequence_of(over, token), t, 0);
    for (int head = 0; head < HEADS; ++head) {
      float expected[LATENT];
      attend(q + (token * HEADS + head) * ROW, ROW, rows, rows, count, kScale, expected, LATENT);
      CHECK_NEAR(out + (token * HEADS + head) * LATENT, expected, LATENT);
    }
  }
}

static void test_absorbed(const batch* over) {
  float q[TOKENS * HEADS * ROW], out[TOKENS * HEADS * LATENT];
  fill(q, TOKENS * HEADS * ROW, 11);
  DLTensor q_view = tensor_f32(q, SHAPE(TOKENS, HEADS, ROW));
  DLTensor out_view = tensor_f32(out, SHAPE(TOKENS, HEADS, LATENT));
  const quire_mla_decode_args decode = {.struct_size = sizeof decode,
                                        .q = &q_view,
                                        .row_offsets = &over->offsets,
                                        .cache = &over->cache,
                                        .layer = LAYER,
                                        .scale = kScale,
                                        .out = &out_view};
  CHECK_OK(quire_mla_decode(&decode, NULL));
  expect_absorbed(over, q, out);

  int32_t indices[TOKENS][KEYS];
  for (int token = 0; token < TOKENS; ++token) {
    for (int t = 0; t < KEYS; ++t) indices[token][t] = t <= position_of(over, token) ? t : -1;
  }
  DLTensor indices_view = tensor_i32(indices[0], SHAPE(TOKENS, KEYS));
  const quire_sparse_mla_args sparse = {.struct_size = sizeof sparse,
                                        .q = &q_view,
                                        .row_offsets = &over->offsets,
                                        .cache = &over->cache,
                                        .layer = LAYER,
                                        .indices = &indices_view,
                                        .scale = kScale,
                                        .out = &out_view};
  for (int i = 0; i < TOKENS * HEADS * LATENT; ++i) out[i] = 0.0f;
  CHECK_OK(quire_sparse_mla(&sparse, NULL));
  expect_absorbed(over, q, out);

  // A second stream that names no row changes nothing.
  int32_t nothing[TOKENS] = {-1, -1, -1, -1};
  DLTensor nothing_view = tensor_i32(nothing, SHAPE(TOKENS, 1));
  const quire_sparse_extra extra = {
      .struct_size = sizeof extra, .cache = &over->cache, .layer = LAYER, .indices = &nothing_view};
  quire_sparse_mla_args with_extra = sparse;
  with_extra.extra = &extra;
  CHECK_OK(quire_sparse_mla(&with_extra, NULL));
  expect_absorbed(over, q, out);
}

// Keys of 5 and 6 tokens take two pages of 4 each: 16 rows, two chunks of 8.
static void test_plan(const batch* over, const quire_mla_prefill_chunks* chunks) {
  int64_t num_chunks = 0;
  CHECK_OK(quire_mla_prefill_num_chunks(&over->offsets, &over->cache, CHUNK, 0, &num_chunks));
  CHECK(num_chunks == 2);
  CHECK_OK(quire_mla_prefill_num_chunks(&over->offsets, &over->cache, 0, 0, &num_chunks));
  CHECK(num_chunks == 1);
  const quire_mla_prefill_plan_args plan = {.struct_size = sizeof plan,
                                            .row_offsets = &over->offsets,
                                            .cache = &over->cache,
                                            .layer = LAYER,
                                            .chunks = chunks};
  CHECK_OK(quire_mla_prefill_plan(&plan, NULL));
  const int32_t* lengths = chunks->buffer_lengths->data;
  CHECK(lengths[0] == 8 && lengths[1] == 8);
}

static void test_prefill(const batch* over) {
  uint32_t buffer_offsets[2][BATCH + 1], cache_offsets[2][BATCH + 1];
  int32_t lengths[2];
  DLTensor buffer_view = tensor_u32(buffer_offsets[0], SHAPE(2, BATCH + 1));
  DLTensor cache_view = tensor_u32(cache_offsets[0], SHAPE(2, BATCH + 1));
  DLTensor lengths_view = tensor_i32(lengths, SHAPE(2));
  const quire_mla_prefill_chunks chunks = {.struct_size = sizeof chunks,
                                           .buffer_row_offsets = &buffer_view,
                                           .cache_offsets = &cache_view,
                                           .buffer_lengths = &lengths_view,
                                           .buffer_tokens = CHUNK};
  test_plan(over, &chunks);

  float q[TOKENS * HEADS * (NOPE + ROPE)], kv_b_proj[HEADS * (NOPE + VALUE) * LATENT];
  float fused[TOKENS * HEADS * VALUE], absorbed[TOKENS * HEADS * VALUE];
  fill(q, TOKENS * HEADS * (NOPE + ROPE), 12);
  fill(kv_b_proj, HEADS * (NOPE + VALUE) * LATENT, 13);
  DLTensor q_view = tensor_f32(q, SHAPE(TOKENS, HEADS, NOPE + ROPE));
  DLTensor proj_view = tensor_f32(kv_b_proj, SHAPE(HEADS * (NOPE + VALUE), LATENT));
  DLTensor fused_view = tensor_f32(fused, SHAPE(TOKENS, HEADS, VALUE));
  DLTensor absorbed_view = tensor_f32(absorbed, SHAPE(TOKENS, HEADS, VALUE));
  const quire_mla_prefill_args prefill = {.struct_size = sizeof prefill,
                                          .q = &q_view,
                                          .row_offsets = &over->offsets,
                                          .cache = &over->cache,
                                          .layer = LAYER,
                                          .kv_b_proj = &proj_view,
                                          .scale = kScale,
                                          .chunks = &chunks,
                                          .out = &fused_view};
  CHECK_OK(quire_mla_prefill(&prefill, NULL));

  int64_t sizes[4][3];
  DLTensor w_uk = {.shape = sizes[0], .strides = sizes[1]},
           w_uv = {.shape = sizes[2], .strides = sizes[3]};
  const quire_absorb_kv_b_proj_args absorb = {.struct_size = sizeof absorb,
                                              .kv_b_proj = &proj_view,
                                              .heads = HEADS,
                                              .nope = NOPE,
                                              .w_uk = &w_uk,
                                              .w_uv = &w_uv};
  CHECK_OK(quire_absorb_kv_b_proj(&absorb));
  CHECK(w_uk.ndim == 3 && w_uk.shape[1] == LATENT && w_uk.shape[2] == NOPE);
  CHECK(w_uv.ndim == 3 && w_uv.shape[1] == VALUE && w_uv.data == kv_b_proj + NOPE * LATENT);
  const quire_mla_decode_args decode = {.struct_size = sizeof decode,
                                        .q = &q_view,
                                        .row_offsets = &over->offsets,
                                        .cache = &over->cache,
                                        .layer = LAYER,
                                        .scale = kScale,
                                        .out = &absorbed_view,
                                        .w_uk = &w_uk,
                                        .w_uv = &w_uv};
  CHECK_OK(quire_mla_decode(&decode, NULL));
  CHECK_NEAR(fused, absorbed, TOKENS * HEADS * VALUE);
  CHECK(fused[0] != 0.0f);

  quire_mla_decode_args allowing = decode;
  allowing.allow_fp8_products = 1;  // changes nothing: the rows are f32
  CHECK_OK(quire_mla_decode(&allowing, NULL));
  CHECK_NEAR(fused, absorbed, TOKENS * HEADS * VALUE);
  allowing.allow_fp8_products = 2;
  CHECK_STATUS(quire_mla_decode(&allowing, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("mla_decode", "allow_fp8_products");
}

void test_latent(void) {
  batch over;
  make_batch(&over, 1, 1, (row_kind){ROW, QUIRE_DL_FLOAT, 32});
  test_absorbed(&over);
  test_prefill(&over);
  free_batch(&over);
}
