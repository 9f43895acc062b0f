// SPDX-License-Identifier: Apache-2.0
// The indexer's rows, its top-k and the remapping of positions, against loops.
#include <math.h>
#include <string.h>

#include "testing.h"
#include "tests.h"

enum { HEADS = 2, WIDTH = 8, TOP_K = 3, KEYS = 6 };

static void expect_row(const float* x, const uint8_t* codes, float scale) {
  float largest = 0.0f;
  for (int d = 0; d < WIDTH; ++d) largest = fmaxf(largest, fabsf(x[d]));
  CHECK(scale == largest / 448.0f);
  for (int d = 0; d < WIDTH; ++d) {
    CHECK(fabsf(e4m3_value(codes[d]) * scale - x[d]) <= fabsf(x[d]) / 16.0f + scale / 512.0f);
  }
}

static void test_index_rows(batch* index) {
  float x[TOKENS][WIDTH], q[TOKENS][HEADS][WIDTH], gates[TOKENS][HEADS], q_scale[TOKENS][HEADS];
  uint8_t codes[TOKENS][HEADS][WIDTH];
  fill(x[0], TOKENS * WIDTH, 14);
  fill(q[0][0], TOKENS * HEADS * WIDTH, 15);
  for (int token = 0; token < TOKENS; ++token) {
    for (int head = 0; head < HEADS; ++head) gates[token][head] = (float)(1 << (token + head) % 3);
  }
  DLTensor x_view = tensor_f32(x[0], SHAPE(TOKENS, WIDTH));
  DLTensor q_view = tensor_f32(q[0][0], SHAPE(TOKENS, HEADS, WIDTH));
  DLTensor gates_view = tensor_f32(gates[0], SHAPE(TOKENS, HEADS));
  DLTensor out = tensor_bytes(codes[0][0], QUIRE_DL_FP8_E4M3, SHAPE(TOKENS, HEADS, WIDTH));
  DLTensor scale_view = tensor_f32(q_scale[0], SHAPE(TOKENS, HEADS));
  const quire_store_index_keys_args keys = {.struct_size = sizeof keys,
                                            .x = &x_view,
                                            .row_offsets = &index->offsets,
                                            .cache = &index->cache,
                                            .layer = LAYER,
                                            .scale_rounding = QUIRE_SCALE_ROUNDING_EXACT};
  CHECK_OK(quire_store_index_keys(&keys, NULL));
  const quire_quantize_index_queries_args queries = {.struct_size = sizeof queries,
                                                     .q = &q_view,
                                                     .row_offsets = &index->offsets,
                                                     .cache = &index->cache,
                                                     .out = &out,
                                                     .q_scale = &scale_view,
                                                     .weights = &gates_view,
                                                     .factor = 0.5,
                                                     .scale_rounding = QUIRE_SCALE_ROUNDING_EXACT};
  CHECK_OK(quire_quantize_index_queries(&queries, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    const int sequence = sequence_of(index, token), position = position_of(index, token);
    expect_row(x[token], row_at(index, 0, sequence, position, 0),
               *scale_at(index, 0, sequence, position, 0));
    for (int head = 0; head < HEADS; ++head) {
      expect_row(q[token][head], codes[token][head],
                 q_scale[token][head] / (0.5f * gates[token][head]));
    }
  }
}

// The best keys in ascending order; a tie goes to the lowest position.
static void choose(const double* scores, int count, int32_t* out) {
  bool taken[KEYS] = {false};
  for (int k = 0; k < TOP_K && k < count; ++k) {
    int best = -1;
    for (int t = 0; t < count; ++t) {
      if (!taken[t] && (best < 0 || scores[t] > scores[best])) best = t;
    }
    taken[best] = true;
  }
  int filled = 0;
  for (int t = 0; t < count; ++t) {
    if (taken[t]) out[filled++] = t;
  }
  while (filled < TOP_K) out[filled++] = -1;
}

static void test_indexer(batch* index) {
  uint8_t codes[TOKENS][HEADS][WIDTH];
  float q_scale[TOKENS][HEADS], numbers[TOKENS * HEADS * WIDTH];
  int32_t out[TOKENS][TOP_K];
  fill(numbers, TOKENS * HEADS * WIDTH, 16);
  fill(q_scale[0], TOKENS * HEADS, 17);
  for (int i = 0; i < TOKENS * HEADS * WIDTH; ++i) {
    codes[i / (HEADS * WIDTH)][i / WIDTH % HEADS][i % WIDTH] = e4m3_code(roundf(8.0f * numbers[i]));
  }
  for (int sequence = 0; sequence < BATCH; ++sequence) {
    for (int t = 0; t < KEYS; ++t) {
      uint8_t* row = row_at(index, 0, sequence, t, 0);
      for (int d = 0; d < WIDTH; ++d)
        row[d] = e4m3_code((float)((sequence + 3 * t + 5 * d) % 7 - 3));
      *scale_at(index, 0, sequence, t, 0) = 0.25f * (float)(1 + t % 2);
    }
  }
  DLTensor q_view = tensor_bytes(codes[0][0], QUIRE_DL_FP8_E4M3, SHAPE(TOKENS, HEADS, WIDTH));
  DLTensor scale_view = tensor_f32(q_scale[0], SHAPE(TOKENS, HEADS));
  DLTensor out_view = tensor_i32(out[0], SHAPE(TOKENS, TOP_K));
  const quire_mla_indexer_args args = {.struct_size = sizeof args,
                                       .q = &q_view,
                                       .q_scale = &scale_view,
                                       .row_offsets = &index->offsets,
                                       .cache = &index->cache,
                                       .layer = LAYER,
                                       .out = &out_view,
                                       .top_k = TOP_K};
  CHECK_OK(quire_mla_indexer(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    double scores[KEYS];
    const int sequence = sequence_of(index, token), count = position_of(index, token) + 1;
    for (int t = 0; t < count; ++t) {
      const uint8_t* row = row_at(index, 0, sequence, t, 0);
      double sum = 0.0;
      for (int head = 0; head < HEADS; ++head) {
        double product = 0.0;
        for (int d = 0; d < WIDTH; ++d)
          product += (double)e4m3_value(codes[token][head][d]) * (double)e4m3_value(row[d]);
        sum += (product > 0.0 ? product : 0.0) * (double)q_scale[token][head];
      }
      scores[t] = sum * (double)*scale_at(index, 0, sequence, t, 0);
    }
    int32_t expected[TOP_K];
    choose(scores, count, expected);
    CHECK(memcmp(out[token], expected, sizeof expected) == 0);
  }
}

static void test_remap(batch* over) {
  int32_t indices[TOKENS][TOP_K] = {{0, 4, -1}, {1, 2, 3}, {4, 0, -1}, {5, 7, 8}},
          out[TOKENS][TOP_K];
  DLTensor indices_view = tensor_i32(indices[0], SHAPE(TOKENS, TOP_K));
  DLTensor out_view = tensor_i32(out[0], SHAPE(TOKENS, TOP_K));
  const quire_remap_sparse_indices_args args = {.struct_size = sizeof args,
                                                .indices = &indices_view,
                                                .row_offsets = &over->offsets,
                                                .cache = &over->cache,
                                                .out = &out_view};
  CHECK_OK(quire_remap_sparse_indices(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    for (int k = 0; k < TOP_K; ++k) {
      const int32_t position = indices[token][k];
      int32_t expected = position;
      if (position >= MAX_PAGES * PAGE_SIZE) expected = -1;  // past the table
      if (expected >= 0) {
        const uint32_t page = over->page_table[sequence_of(over, token)][position / PAGE_SIZE];
        expected = (int32_t)page * PAGE_SIZE + position % PAGE_SIZE;
      }
      CHECK(out[token][k] == expected);
    }
  }
}

// Keys that are their own scores: of five blocks the best two, and the token's own.
static void test_select_blocks(void) {
  float q[1] = {1}, keys[12] = {0, 9, 1, 1, 7, -5, 8, 8, 2, 2};
  uint32_t offsets[2] = {0, 1}, lengths[1] = {9}, table[1] = {0};
  int32_t out[3];
  DLTensor q_view = tensor_f32(q, SHAPE(1, 1, 1)), offsets_view = tensor_u32(offsets, SHAPE(2));
  DLTensor blocks = tensor_f32(keys, SHAPE(1, 1, 1, 12, 1, 1)),
           lengths_view = tensor_u32(lengths, SHAPE(1));
  DLTensor table_view = tensor_u32(table, SHAPE(1, 1)), out_view = tensor_i32(out, SHAPE(1, 1, 3));
  const quire_cache cache = {.struct_size = sizeof cache,
                             .blocks = &blocks,
                             .cache_lengths = &lengths_view,
                             .page_table = &table_view};
  const quire_select_blocks_args args = {.struct_size = sizeof args,
                                         .q = &q_view,
                                         .row_offsets = &offsets_view,
                                         .cache = &cache,
                                         .out = &out_view,
                                         .block_size = 2,
                                         .local_blocks = 1};
  CHECK_OK(quire_select_blocks(&args, NULL));
  CHECK(out[0] == 0 && out[1] == 3 && out[2] == 4);
}

// Two tokens of equal gates are a row of their mean over its root mean square; the third waits.
static void test_compress_keys(void) {
  float kv[3][2] = {{2, 0}, {4, 2}, {9, 7}}, gate[3][2] = {{0}}, bias[2][2] = {{0}};
  float gamma[2] = {1, 1}, freqs[2] = {1, 0}, state[2][2][2][2] = {{{{0}}}}, rows[2][2] = {{0}};
  uint32_t offsets[2] = {0, 3}, lengths[1] = {0}, table[1] = {0}, slots[1] = {1};
  DLTensor kv_view = tensor_f32(kv[0], SHAPE(3, 2)), gate_view = tensor_f32(gate[0], SHAPE(3, 2));
  DLTensor bias_view = tensor_f32(bias[0], SHAPE(2, 2)), gamma_view = tensor_f32(gamma, SHAPE(2));
  DLTensor freqs_view = tensor_f32(freqs, SHAPE(1, 2));
  DLTensor state_view = tensor_f32(state[0][0][0], SHAPE(2, 2, 2, 2));
  DLTensor blocks = tensor_f32(rows[0], SHAPE(1, 1, 1, 2, 1, 2));
  DLTensor offsets_view = tensor_u32(offsets, SHAPE(2)),
           lengths_view = tensor_u32(lengths, SHAPE(1));
  DLTensor table_view = tensor_u32(table, SHAPE(1, 1)), slots_view = tensor_u32(slots, SHAPE(1));
  const quire_cache cache = {.struct_size = sizeof cache,
                             .blocks = &blocks,
                             .cache_lengths = &lengths_view,
                             .page_table = &table_view};
  const quire_compress_keys_args args = {.struct_size = sizeof args,
                                         .kv = &kv_view,
                                         .gate = &gate_view,
                                         .bias = &bias_view,
                                         .row_offsets = &offsets_view,
                                         .cache = &cache,
                                         .gamma = &gamma_view,
                                         .freqs_cis = &freqs_view,
                                         .state = &state_view,
                                         .state_slots = &slots_view};
  CHECK_OK(quire_compress_keys(&args, NULL));
  const float norm = sqrtf(5.0f + 1e-6f);
  CHECK(fabsf(rows[0][0] - 3.0f / norm) < 1e-6f && fabsf(rows[0][1] - 1.0f / norm) < 1e-6f);
  CHECK(rows[1][0] == 0.0f && rows[1][1] == 0.0f);
  CHECK(state[1][0][0][0] == 9.0f && state[1][0][0][1] == 7.0f);  // token 2, row 2 mod 2
  CHECK(state[0][0][0][0] == 0.0f);
}

void test_sparse(void) {
  test_compress_keys();
  test_select_blocks();
  batch index;
  make_batch(&index, 1, 1, (row_kind){WIDTH, QUIRE_DL_FP8_E4M3, 8});
  add_scales(&index);
  test_index_rows(&index);
  test_indexer(&index);
  test_remap(&index);

  // The same cache as an engine may have it: bytes, and a word that says what they are.
  index.blocks.dtype.code = QUIRE_DL_UINT;
  index.cache.blocks_dtype = QUIRE_DTYPE_FP8_E4M3;
  test_indexer(&index);
  free_batch(&index);
}
