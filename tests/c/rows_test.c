// SPDX-License-Identifier: Apache-2.0
// Rope, norms, stores, page copies, fp8 and lengths against loops.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "tests.h"

enum { HEADS = 2, WIDTH = 8 };
static const row_kind kF32Rows = {WIDTH, QUIRE_DL_FLOAT, 32};

static void test_row_offsets(void) {
  uint32_t offsets[] = {0, 2, 3}, cached[] = {5, 7}, keys[3] = {9, 9, 9};
  DLTensor row_offsets = tensor_u32(offsets, SHAPE(3));
  DLTensor lengths = tensor_u32(cached, SHAPE(2));
  DLTensor out = tensor_u32(keys, SHAPE(3));
  const quire_row_offsets_args args = {.struct_size = sizeof args,
                                       .row_offsets = &row_offsets,
                                       .cache_lengths = &lengths,
                                       .out = &out};
  CHECK_OK(quire_row_offsets(&args, NULL));
  CHECK(keys[0] == 0 && keys[1] == 7 && keys[2] == 15);
}

static void test_store(void) {
  batch into;
  make_batch(&into, 2, HEADS, kF32Rows);
  float x[TOKENS][HEADS][WIDTH];
  fill(x[0][0], TOKENS * HEADS * WIDTH, 1);
  DLTensor x_view = tensor_f32(x[0][0], SHAPE(TOKENS, HEADS, WIDTH));
  const quire_store_args args = {.struct_size = sizeof args,
                                 .x = &x_view,
                                 .row_offsets = &into.offsets,
                                 .cache = &into.cache,
                                 .layer = LAYER,
                                 .side = QUIRE_SIDE_VALUE};
  CHECK_OK(quire_store(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    for (int head = 0; head < HEADS; ++head) {
      const void* row =
          row_at(&into, 1, sequence_of(&into, token), position_of(&into, token), head);
      CHECK(memcmp(row, x[token][head], sizeof x[token][head]) == 0);
    }
  }
  free_batch(&into);
}

// K and V into a pool that has neither lengths nor a page table; the second token is skipped.
static void test_store_slots(void) {
  batch into;
  make_batch(&into, 2, HEADS, kF32Rows);
  float kv[TOKENS][2][HEADS][WIDTH], before[WIDTH];
  fill(kv[0][0][0], TOKENS * 2 * HEADS * WIDTH, 5);
  int64_t shape[] = {TOKENS, HEADS, WIDTH}, strides[] = {2 * HEADS * WIDTH, WIDTH, 1};
  int64_t slot[TOKENS] = {NUM_PAGES * PAGE_SIZE - 1, -1, 2, 5}, num_slots = TOKENS;
  DLTensor k = tensor_f32(kv[0][0][0], shape, 3);
  k.strides = strides;
  DLTensor v = k;
  v.data = kv[0][1][0];
  DLTensor slots = tensor_i32(NULL, &num_slots, 1);
  slots.data = slot;
  slots.dtype.bits = 64;
  quire_cache pool = {.struct_size = sizeof pool, .blocks = &into.blocks};
  quire_store_args args = {.struct_size = sizeof args,
                           .x = &k,
                           .cache = &pool,
                           .layer = LAYER,
                           .value = &v,
                           .slots = &slots};
  memcpy(before, (float*)into.pool + WIDTH, sizeof before);
  CHECK_OK(quire_store(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    if (slot[token] < 0) continue;
    for (int side = 0; side < 2; ++side) {
      const int64_t page = slot[token] / PAGE_SIZE, row = slot[token] % PAGE_SIZE;
      const float* found =
          (float*)into.pool +
          (((page * 2 + side) * NUM_LAYERS + LAYER) * PAGE_SIZE + row) * HEADS * WIDTH;
      CHECK(memcmp(found, kv[token][side], sizeof kv[token][side]) == 0);
    }
  }
  CHECK(memcmp(before, (float*)into.pool + WIDTH, sizeof before) == 0);

  slot[1] = NUM_PAGES * PAGE_SIZE;
  CHECK_STATUS(quire_store(&args, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("store", "slots");
  args.slots = NULL;
  CHECK_STATUS(quire_store(&args, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("store", "row_offsets");
  args.row_offsets = &into.offsets;
  CHECK_STATUS(quire_store(&args, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("store", "cache.cache_lengths");
  free_batch(&into);
}

static void test_store_scales(void) {
  batch into;
  make_batch(&into, 2, HEADS, (row_kind){WIDTH, QUIRE_DL_FP8_E4M3, 8});
  add_scales(&into);
  float scales[TOKENS][HEADS];
  fill(scales[0], TOKENS * HEADS, 2);
  DLTensor view = tensor_f32(scales[0], SHAPE(TOKENS, HEADS, 1));
  const quire_store_scales_args args = {.struct_size = sizeof args,
                                        .scales = &view,
                                        .row_offsets = &into.offsets,
                                        .cache = &into.cache,
                                        .layer = LAYER};
  CHECK_OK(quire_store_scales(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    for (int head = 0; head < HEADS; ++head) {
      CHECK(*scale_at(&into, 0, sequence_of(&into, token), position_of(&into, token), head) ==
            scales[token][head]);
    }
  }
  CHECK(*scale_at(&into, 0, 0, 0, 0) == 1.0f);
  free_batch(&into);
}

static void test_copy_pages(void) {
  batch pages;
  make_batch(&pages, 2, HEADS, kF32Rows);
  uint32_t pair[] = {3, 2};
  DLTensor pairs = tensor_u32(pair, SHAPE(1, 2));
  const quire_copy_pages_args args = {
      .struct_size = sizeof args, .cache = &pages.cache, .pairs = &pairs};
  const char* pool = pages.pool;
  const size_t page_bytes = (size_t)pages.num_bytes / NUM_PAGES;
  CHECK(memcmp(pool + 2 * page_bytes, pool + 3 * page_bytes, page_bytes) != 0);
  CHECK_OK(quire_copy_pages(&args, NULL));
  CHECK(memcmp(pool + 2 * page_bytes, pool + 3 * page_bytes, page_bytes) == 0);
  free_batch(&pages);
}

static void normalise(const float* x, const float* gamma, float* out) {
  double squares = 0.0;
  for (int d = 0; d < WIDTH; ++d) squares += (double)x[d] * (double)x[d];
  const double factor = 1.0 / sqrt(squares / WIDTH + 1e-6);
  for (int d = 0; d < WIDTH; ++d) out[d] = (float)((double)x[d] * factor * (double)gamma[d]);
}

static void test_rms_norm(void) {
  float gamma[WIDTH];
  fill(gamma, WIDTH, 3);
  DLTensor gamma_view = tensor_f32(gamma, SHAPE(WIDTH));
  for (int side = 0; side < 2; ++side) {
    batch rows, before;
    make_batch(&rows, 2, HEADS, kF32Rows);
    make_batch(&before, 2, HEADS, kF32Rows);
    const quire_rms_norm_args args = {.struct_size = sizeof args,
                                      .cache = &rows.cache,
                                      .layer = LAYER,
                                      .row_offsets = &rows.offsets,
                                      .gamma = &gamma_view};
    CHECK_OK(side == 0 ? quire_rms_norm_key(&args, NULL) : quire_rms_norm_value(&args, NULL));
    for (int token = 0; token < TOKENS; ++token) {
      const int sequence = sequence_of(&rows, token), position = position_of(&rows, token);
      float expected[WIDTH];
      normalise(row_at(&before, side, sequence, position, 1), gamma, expected);
      CHECK_NEAR(row_at(&rows, side, sequence, position, 1), expected, WIDTH);
      const size_t bytes = (size_t)rows.row_bytes;  // the other side is left alone
      CHECK(memcmp(row_at(&rows, 1 - side, sequence, position, 1),
                   row_at(&before, 1 - side, sequence, position, 1), bytes) == 0);
    }
    free_batch(&rows);
    free_batch(&before);
  }
}

// Half-split pairs (j, j + WIDTH / 2).
static void rotate(const float* x, const float* freqs, float* out) {
  for (int j = 0; j < WIDTH / 2; ++j) {
    const float a = x[j], b = x[j + WIDTH / 2], cosine = freqs[2 * j], sine = freqs[2 * j + 1];
    out[j] = a * cosine - b * sine;
    out[j + WIDTH / 2] = a * sine + b * cosine;
  }
}

static void test_rope(void) {
  batch rows, before;
  make_batch(&rows, 2, HEADS, kF32Rows);
  make_batch(&before, 2, HEADS, kF32Rows);
  float q[TOKENS][HEADS][WIDTH], out[TOKENS][HEADS][WIDTH], freqs[8][WIDTH], expected[WIDTH];
  fill(q[0][0], TOKENS * HEADS * WIDTH, 4);
  for (int p = 0; p < 8; ++p) {
    for (int j = 0; j < WIDTH / 2; ++j) {
      const double angle = p * pow(100.0, -2.0 * j / WIDTH);
      freqs[p][2 * j] = (float)cos(angle);
      freqs[p][2 * j + 1] = (float)sin(angle);
    }
  }
  DLTensor q_view = tensor_f32(q[0][0], SHAPE(TOKENS, HEADS, WIDTH));
  DLTensor out_view = tensor_f32(out[0][0], SHAPE(TOKENS, HEADS, WIDTH));
  DLTensor freqs_view = tensor_f32(freqs[0], SHAPE(8, WIDTH));
  quire_rope_args args = {.struct_size = sizeof args,
                          .q = &q_view,
                          .row_offsets = &rows.offsets,
                          .cache = &rows.cache,
                          .layer = LAYER,
                          .freqs_cis = &freqs_view,
                          .out = &out_view,
                          .q_only = 1};
  CHECK_OK(quire_rope(&args, NULL));
  CHECK(memcmp(rows.pool, before.pool, (size_t)rows.num_bytes) == 0);
  args.q_only = 0;
  CHECK_OK(quire_rope(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    const int sequence = sequence_of(&rows, token), position = position_of(&rows, token);
    for (int head = 0; head < HEADS; ++head) {
      rotate(q[token][head], freqs[position], expected);
      CHECK_NEAR(out[token][head], expected, WIDTH);
      rotate(row_at(&before, 0, sequence, position, head), freqs[position], expected);
      CHECK_NEAR(row_at(&rows, 0, sequence, position, head), expected, WIDTH);
    }
  }
  free_batch(&rows);
  free_batch(&before);
}

static void test_quantize_fp8(void) {
  enum { ROWS = 3, COLUMNS = 8, GROUP = 4 };
  float x[ROWS][COLUMNS], scales[ROWS][COLUMNS / GROUP];
  uint8_t codes[ROWS][COLUMNS];
  fill(x[0], ROWS * COLUMNS, 6);
  DLTensor x_view = tensor_f32(x[0], SHAPE(ROWS, COLUMNS));
  DLTensor out = tensor_bytes(codes[0], QUIRE_DL_FP8_E4M3, SHAPE(ROWS, COLUMNS));
  DLTensor scale = tensor_f32(scales[0], SHAPE(ROWS, COLUMNS / GROUP));
  quire_quantize_fp8_args args = {
      .struct_size = sizeof args, .x = &x_view, .out = &out, .scale = &scale, .group_size = GROUP};
  CHECK_OK(quire_quantize_fp8(&args, NULL));
  for (int row = 0; row < ROWS; ++row) {
    for (int group = 0; group < COLUMNS / GROUP; ++group) {
      float largest = 0.0f;
      for (int d = group * GROUP; d < (group + 1) * GROUP; ++d)
        largest = fmaxf(largest, fabsf(x[row][d]));
      CHECK(scales[row][group] == largest / 448.0f);
      for (int d = group * GROUP; d < (group + 1) * GROUP; ++d) {
        const float value = e4m3_value(codes[row][d]) * scales[row][group];
        CHECK(fabsf(value - x[row][d]) <= fabsf(x[row][d]) / 16.0f + scales[row][group] / 512.0f);
      }
    }
  }
  args.scale_rounding = QUIRE_SCALE_ROUNDING_POWER_OF_TWO;
  CHECK_OK(quire_quantize_fp8(&args, NULL));
  int exponent = 0;
  CHECK(frexpf(scales[0][0], &exponent) == 0.5f);
}

void test_rows(void) {
  test_row_offsets();
  test_store();
  test_store_slots();
  test_store_scales();
  test_copy_pages();
  test_rms_norm();
  test_rope();
  test_quantize_fp8();
}
