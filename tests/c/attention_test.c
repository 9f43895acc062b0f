// SPDX-License-Identifier: Apache-2.0
// Attention over the cache under several masks, and what joins parts of it, against loops.
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "testing.h"
#include "tests.h"

enum { HEADS = 4, KV_HEADS = 2, WIDTH = 8 };

typedef bool (*sees)(int q, int k);

static bool sees_causal(int q, int k) {
  return k <= q;
}
static bool sees_all(int q, int k) {
  (void)q, (void)k;
  return true;
}
static bool sees_window(int q, int k) {
  return k <= q && q - k < 2;
}
static bool sees_chunk_or_neighbour(int q, int k) {
  return q / 3 == k / 3 || abs(q - k) < 2;
}

static void expect_attention(const batch* over, const float* q, const float* out, double scale,
                             sees visible) {
  for (int token = 0; token < TOKENS; ++token) {
    const int sequence = sequence_of(over, token);
    const int num_keys = (int)(over->cache_lengths[sequence] + over->row_offsets[sequence + 1] -
                               over->row_offsets[sequence]);
    for (int head = 0; head < HEADS; ++head) {
      const float *keys[16], *values[16];
      int count = 0;
      for (int t = 0; t < num_keys; ++t) {
        if (!visible(position_of(over, token), t)) continue;
        keys[count] = row_at(over, 0, sequence, t, head / (HEADS / KV_HEADS));
        values[count++] = row_at(over, 1, sequence, t, head / (HEADS / KV_HEADS));
      }
      float expected[WIDTH];
      const int64_t at = (token * HEADS + head) * WIDTH;
      attend(q + at, WIDTH, keys, values, count, scale, expected, WIDTH);
      CHECK_NEAR(out + at, expected, WIDTH);
    }
  }
}

static void test_masks(quire_flash_attention_args args, const batch* over, const float* q,
                       const float* out) {
  const double scale = 1.0 / sqrt(WIDTH);
  CHECK_OK(quire_flash_attention(&args, NULL));
  expect_attention(over, q, out, scale, sees_causal);

  const quire_mask causal = {.struct_size = sizeof causal};
  const quire_mask full = {.struct_size = sizeof full, .kind = QUIRE_MASK_FULL};
  const quire_mask window = {
      .struct_size = sizeof window, .kind = QUIRE_MASK_SLIDING_WINDOW, .size = 2};
  const quire_mask chunk = {.struct_size = sizeof chunk, .kind = QUIRE_MASK_CHUNKED, .size = 3};
  const quire_mask recent = {
      .struct_size = sizeof recent, .kind = QUIRE_MASK_ALL_OF, .left = &causal, .right = &window};
  const quire_mask either = {
      .struct_size = sizeof either, .kind = QUIRE_MASK_ANY_OF, .left = &chunk, .right = &window};
  args.mask = &full;
  CHECK_OK(quire_flash_attention(&args, NULL));
  expect_attention(over, q, out, scale, sees_all);
  args.mask = &recent;
  CHECK_OK(quire_flash_attention(&args, NULL));
  expect_attention(over, q, out, scale, sees_window);
  args.mask = &either;
  args.scale = 0.5;
  CHECK_OK(quire_flash_attention(&args, NULL));
  expect_attention(over, q, out, 0.5, sees_chunk_or_neighbour);

  // A tree in which every new token sees the new ones before it and itself is causal.
  uint8_t bits[TOKENS][3] = {{1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {1, 0, 0}};
  DLTensor bits_view = tensor_bytes(bits[0], QUIRE_DL_UINT, SHAPE(TOKENS, 3));
  const quire_mask tree = {.struct_size = sizeof tree, .kind = QUIRE_MASK_TREE, .bits = &bits_view};
  args.mask = &tree;
  args.scale = 0.0;
  CHECK_OK(quire_flash_attention(&args, NULL));
  expect_attention(over, q, out, scale, sees_causal);

  // Bounds that every token brings itself: the two columns of one tensor, here those of a causal window.
  int32_t bounds[TOKENS][2];
  for (int token = 0; token < TOKENS; ++token) {
    bounds[token][0] = position_of(over, token) - 1;
    bounds[token][1] = position_of(over, token) + 1;
  }
  int64_t tokens[] = {TOKENS}, stride[] = {2};
  DLTensor begin = {.data = &bounds[0][0],
                    .device = {.device_type = 1},
                    .ndim = 1,
                    .dtype = {.code = QUIRE_DL_INT, .bits = 32, .lanes = 1},
                    .shape = tokens,
                    .strides = stride};
  DLTensor end = begin;
  end.data = &bounds[0][1];
  const quire_mask own = {
      .struct_size = sizeof own, .kind = QUIRE_MASK_KEY_INTERVALS, .begin = &begin, .end = &end};
  args.mask = &own;
  CHECK_OK(quire_flash_attention(&args, NULL));
  expect_attention(over, q, out, scale, sees_window);

  // Lists of keys, of both KV heads: the token's own, the one before it, and none.
  int32_t lists[TOKENS][KV_HEADS][3];
  for (int token = 0; token < TOKENS; ++token) {
    for (int head = 0; head < KV_HEADS; ++head) {
      lists[token][head][0] = position_of(over, token);
      lists[token][head][1] = -1;
      lists[token][head][2] = position_of(over, token) - 1;
    }
  }
  DLTensor lists_view = tensor_i32(lists[0][0], SHAPE(TOKENS, KV_HEADS, 3));
  args.mask = NULL;
  args.key_blocks = &lists_view;
  args.key_block_size = 1;
  CHECK_OK(quire_flash_attention(&args, NULL));
  expect_attention(over, q, out, scale, sees_window);
}

// Two attentions over half of the keys each, joined by their LSE, are one over all of them.
static void test_merge_states(void) {
  enum { VALUES = 3 };
  float states[2][1][1][VALUES] = {{{{1.0f, 2.0f, 3.0f}}}, {{{5.0f, 6.0f, 7.0f}}}};
  float lses[2][1][1] = {{{0.0f}}, {{logf(3.0f)}}};  // weights 1 and 3
  float out[VALUES], lse[1];
  DLTensor states_view = tensor_f32(states[0][0][0], SHAPE(2, 1, 1, VALUES));
  DLTensor lses_view = tensor_f32(lses[0][0], SHAPE(2, 1, 1));
  DLTensor out_view = tensor_f32(out, SHAPE(1, 1, VALUES));
  DLTensor lse_view = tensor_f32(lse, SHAPE(1, 1));
  const quire_merge_states_args args = {.struct_size = sizeof args,
                                        .states = &states_view,
                                        .lses = &lses_view,
                                        .out = &out_view,
                                        .lse = &lse_view};
  CHECK_OK(quire_merge_states(&args, NULL));
  const float expected[VALUES] = {4.0f, 5.0f, 6.0f}, expected_lse[] = {logf(4.0f)};
  CHECK_NEAR(out, expected, VALUES);
  CHECK_NEAR(lse, expected_lse, 1);
}

// Sequence by sequence: the context alone, none of it, and K and V of the keys without a cache.
static void test_keys(quire_flash_attention_args args, const batch* over, const float* q,
                      const float* out) {
  const double scale = 1.0 / sqrt(WIDTH);
  const quire_mask full = {.struct_size = sizeof full, .kind = QUIRE_MASK_FULL};
  uint32_t counts[BATCH] = {over->cache_lengths[0]};  // none of the others
  DLTensor counts_view = tensor_u32(counts, SHAPE(BATCH));
  args.mask = &full;
  args.key_lengths = &counts_view;
  CHECK_OK(quire_flash_attention(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    const int sequence = sequence_of(over, token);
    for (int head = 0; head < HEADS; ++head) {
      const float *keys[16], *values[16];
      for (int t = 0; t < (int)counts[sequence]; ++t) {
        keys[t] = row_at(over, 0, sequence, t, head / (HEADS / KV_HEADS));
        values[t] = row_at(over, 1, sequence, t, head / (HEADS / KV_HEADS));
      }
      float expected[WIDTH] = {0};
      const int64_t at = (token * HEADS + head) * WIDTH;
      if (counts[sequence] > 0) {
        attend(q + at, WIDTH, keys, values, (int)counts[sequence], scale, expected, WIDTH);
      }
      CHECK_NEAR(out + at, expected, WIDTH);
    }
  }

  float k[TOKENS * KV_HEADS * WIDTH], v[TOKENS * KV_HEADS * WIDTH];
  fill(k, TOKENS * KV_HEADS * WIDTH, 8);
  fill(v, TOKENS * KV_HEADS * WIDTH, 9);
  DLTensor k_view = tensor_f32(k, SHAPE(TOKENS, KV_HEADS, WIDTH));
  DLTensor v_view = tensor_f32(v, SHAPE(TOKENS, KV_HEADS, WIDTH));
  args.key_lengths = NULL;
  args.k = &k_view;
  args.v = &v_view;
  args.key_offsets = &over->offsets;
  CHECK_STATUS(quire_flash_attention(&args, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("flash_attention", "cache");
  args.cache = NULL;
  args.layer = 0;
  args.mask = NULL;
  CHECK_OK(quire_flash_attention(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    const int first = (int)over->row_offsets[sequence_of(over, token)];
    for (int head = 0; head < HEADS; ++head) {
      const float *keys[16], *values[16];
      for (int t = first; t <= token; ++t) {
        const int64_t row = (t * KV_HEADS + head / (HEADS / KV_HEADS)) * WIDTH;
        keys[t - first] = k + row;
        values[t - first] = v + row;
      }
      float expected[WIDTH];
      const int64_t at = (token * HEADS + head) * WIDTH;
      attend(q + at, WIDTH, keys, values, token + 1 - first, scale, expected, WIDTH);
      CHECK_NEAR(out + at, expected, WIDTH);
    }
  }
}

void test_attention(void) {
  batch over;
  make_batch(&over, 2, KV_HEADS, (row_kind){WIDTH, QUIRE_DL_FLOAT, 32});
  float q[TOKENS * HEADS * WIDTH], out[TOKENS * HEADS * WIDTH];
  fill(q, TOKENS * HEADS * WIDTH, 7);
  DLTensor q_view = tensor_f32(q, SHAPE(TOKENS, HEADS, WIDTH));
  DLTensor out_view = tensor_f32(out, SHAPE(TOKENS, HEADS, WIDTH));
  const quire_flash_attention_args args = {.struct_size = sizeof args,
                                           .q = &q_view,
                                           .row_offsets = &over.offsets,
                                           .cache = &over.cache,
                                           .layer = LAYER,
                                           .out = &out_view};
  test_masks(args, &over, q, out);
  test_keys(args, &over, q, out);
  test_merge_states();
  free_batch(&over);
}
