// SPDX-License-Identifier: Apache-2.0
// The projection into the pages with dense, int4 and packed weights, against loops.
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "tests.h"

enum {
  HEADS = 2,
  WIDTH = 8,
  Q_DIM = 16,
  KV_DIM = HEADS * WIDTH,
  N = Q_DIM + 2 * KV_DIM,
  HIDDEN = 64,
  GROUP = 32
};

typedef struct problem {
  batch into;
  float x[TOKENS][HIDDEN];
  float bias[N];
  float out[TOKENS][Q_DIM];
} problem;

static void expect_rows(const problem* from, const float* weight) {
  for (int token = 0; token < TOKENS; ++token) {
    float y[N];
    for (int n = 0; n < N; ++n) {
      double sum = (double)from->bias[n];
      for (int k = 0; k < HIDDEN; ++k)
        sum += (double)from->x[token][k] * (double)weight[n * HIDDEN + k];
      y[n] = (float)sum;
    }
    const int sequence = sequence_of(&from->into, token),
              position = position_of(&from->into, token);
    CHECK_NEAR(from->out[token], y, Q_DIM);
    for (int head = 0; head < HEADS; ++head) {
      CHECK_NEAR(row_at(&from->into, 0, sequence, position, head), y + Q_DIM + head * WIDTH, WIDTH);
      CHECK_NEAR(row_at(&from->into, 1, sequence, position, head),
                 y + Q_DIM + KV_DIM + head * WIDTH, WIDTH);
    }
  }
}

static void project(problem* from, const quire_weight* weight) {
  DLTensor x = tensor_f32(from->x[0], SHAPE(TOKENS, HIDDEN));
  DLTensor bias = tensor_f32(from->bias, SHAPE(N));
  DLTensor out = tensor_f32(from->out[0], SHAPE(TOKENS, Q_DIM));
  const quire_fused_qkv_matmul_args args = {.struct_size = sizeof args,
                                            .x = &x,
                                            .row_offsets = &from->into.offsets,
                                            .weight = weight,
                                            .cache = &from->into.cache,
                                            .layer = LAYER,
                                            .out = &out,
                                            .bias = &bias};
  memset(from->out, 0, sizeof from->out);
  memset(from->into.pool, 0, (size_t)from->into.num_bytes);
  CHECK_OK(quire_fused_qkv_matmul(&args, NULL));
}

static void test_linear(problem* from, const quire_weight* dense, const float* weight) {
  static float all[TOKENS][N];
  DLTensor x = tensor_f32(from->x[0], SHAPE(TOKENS, HIDDEN));
  DLTensor bias = tensor_f32(from->bias, SHAPE(N));
  DLTensor out = tensor_f32(all[0], SHAPE(TOKENS, N));
  quire_linear_args args = {
      .struct_size = sizeof args, .x = &x, .weight = dense, .out = &out, .bias = &bias};
  CHECK_OK(quire_linear(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    float y[N];
    for (int n = 0; n < N; ++n) {
      double sum = (double)from->bias[n];
      for (int k = 0; k < HIDDEN; ++k)
        sum += (double)from->x[token][k] * (double)weight[n * HIDDEN + k];
      y[n] = (float)sum;
    }
    CHECK_NEAR(all[token], y, N);
  }
  args.weight = NULL;
  CHECK_STATUS(quire_linear(&args, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("linear", "weight");
}

static void test_int4(problem* from) {
  static uint8_t codes[N][HIDDEN / 2];
  static float scales[N][HIDDEN / GROUP], weight[N][HIDDEN];
  for (int n = 0; n < N; ++n) {
    for (int g = 0; g < HIDDEN / GROUP; ++g) scales[n][g] = 0.125f * (float)(1 + (n + g) % 3);
    for (int k = 0; k < HIDDEN; ++k) {
      const int code = (5 * n + 3 * k) % 16;
      codes[n][k / 2] = (uint8_t)(codes[n][k / 2] | code << 4 * (k % 2));
      weight[n][k] = (float)(code - 8) * scales[n][k / GROUP];
    }
  }
  DLTensor data = tensor_bytes(codes[0], QUIRE_DL_UINT, SHAPE(N, HIDDEN / 2));
  DLTensor scale = tensor_f32(scales[0], SHAPE(N, HIDDEN / GROUP));
  const quire_weight int4 = {.struct_size = sizeof int4,
                             .data = &data,
                             .scale = &scale,
                             .group_size = GROUP,
                             .format = QUIRE_WEIGHT_INT4};
  project(from, &int4);
  expect_rows(from, weight[0]);
}

// Packed, and packed again from the bytes as a file would keep them: the same bits as unpacked.
static void test_packed(problem* from, const quire_weight* dense) {
  int64_t bytes = 0;
  CHECK_OK(quire_packed_bytes(dense, NULL, &bytes));
  CHECK(bytes >= (int64_t)sizeof(float) * N * HIDDEN);
  const size_t rounded = (size_t)(bytes + 63) / 64 * 64;
  uint8_t *storage = aligned_alloc(64, rounded), *copy = aligned_alloc(64, rounded);
  DLTensor view = tensor_bytes(storage, QUIRE_DL_UINT, SHAPE(bytes));
  quire_packed_weight *packed = NULL, *again = NULL;
  CHECK_OK(quire_pack_weight(dense, &view, NULL, &packed));

  float out[TOKENS][Q_DIM];
  void* pool = malloc((size_t)from->into.num_bytes);
  project(from, dense);
  memcpy(out, from->out, sizeof out);
  memcpy(pool, from->into.pool, (size_t)from->into.num_bytes);

  const quire_weight weight = {.struct_size = sizeof weight, .packed = packed};
  project(from, &weight);
  CHECK(memcmp(out, from->out, sizeof out) == 0);
  CHECK(memcmp(pool, from->into.pool, (size_t)from->into.num_bytes) == 0);

  quire_packed_form form = {.struct_size = sizeof form};
  CHECK_OK(quire_packed_weight_form(packed, &form));
  CHECK(form.rows == N && form.columns == HIDDEN && form.format == QUIRE_WEIGHT_DENSE);
  CHECK(form.dtype == QUIRE_DTYPE_F32 && form.packing != QUIRE_PACKING_NONE && form.has_perm == 0);
  memcpy(copy, storage, (size_t)bytes);
  memset(storage, 0, rounded);
  DLTensor copied = tensor_bytes(copy, QUIRE_DL_UINT, SHAPE(bytes));
  CHECK_OK(quire_packed_view(&form, &copied, NULL, &again));
  const quire_weight restored = {.struct_size = sizeof restored, .packed = again};
  project(from, &restored);
  CHECK(memcmp(out, from->out, sizeof out) == 0);

  const quire_weight both = {.struct_size = sizeof both, .data = dense->data, .packed = packed};
  CHECK_STATUS(quire_packed_bytes(&both, NULL, &bytes), QUIRE_INVALID_VALUE);
  CHECK_NAMES("pack_weight", "weight");
  quire_packed_weight_free(packed);
  quire_packed_weight_free(again);
  free(storage);
  free(copy);
  free(pool);
}

void test_projection(void) {
  static problem from;
  static float weight[N][HIDDEN];
  make_batch(&from.into, 2, HEADS, (row_kind){WIDTH, QUIRE_DL_FLOAT, 32});
  fill(from.x[0], TOKENS * HIDDEN, 8);
  fill(from.bias, N, 9);
  fill(weight[0], N * HIDDEN, 10);
  DLTensor data = tensor_f32(weight[0], SHAPE(N, HIDDEN));
  const quire_weight dense = {.struct_size = sizeof dense, .data = &data};
  project(&from, &dense);
  expect_rows(&from, weight[0]);
  test_linear(&from, &dense, weight[0]);
  test_int4(&from);
  test_packed(&from, &dense);
  free_batch(&from.into);
}
