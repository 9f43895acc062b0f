// SPDX-License-Identifier: Apache-2.0
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

void check(bool condition, const char* text, const char* file, int line) {
  if (condition) return;
  ++failures;
  printf("%s:%d: %s does not hold\n", file, line, text);
}

void check_status(quire_status status, quire_status expected, const char* text, const char* file,
                  int line) {
  if (status == expected) return;
  ++failures;
  printf("%s:%d: %s gave %d in place of %d: %s\n", file, line, text, status, expected,
         quire_last_error());
}

void check_names(const char* op, const char* argument, const char* file, int line) {
  const char* named = quire_last_error_part(QUIRE_ERROR_ARGUMENT);
  if (strcmp(quire_last_error_part(QUIRE_ERROR_OP), op) == 0 && strcmp(named, argument) == 0)
    return;
  ++failures;
  printf("%s:%d: expected an error of %s that names '%s', got: %s\n", file, line, op, argument,
         quire_last_error());
}

void check_near(const float* actual, const float* expected, int64_t count, const char* file,
                int line) {
  for (int64_t i = 0; i < count; ++i) {
    const float size = fabsf(expected[i]) > 1.0f ? fabsf(expected[i]) : 1.0f;
    if (fabsf(actual[i] - expected[i]) <= 1e-5f * size) continue;
    ++failures;
    printf("%s:%d: number %lld is %g, expected %g\n", file, line, (long long)i, (double)actual[i],
           (double)expected[i]);
    return;
  }
}

int num_failures(void) {
  return failures;
}

static DLTensor tensor_of(void* data, uint8_t code, uint8_t bits, int64_t* shape, int32_t ndim) {
  return (DLTensor){.data = data,
                    .device = {QUIRE_DL_CPU, 0},
                    .ndim = ndim,
                    .dtype = {code, bits, 1},
                    .shape = shape,
                    .strides = NULL,
                    .byte_offset = 0};
}

DLTensor tensor_f32(float* data, int64_t* shape, int32_t ndim) {
  return tensor_of(data, QUIRE_DL_FLOAT, 32, shape, ndim);
}

DLTensor tensor_u32(uint32_t* data, int64_t* shape, int32_t ndim) {
  return tensor_of(data, QUIRE_DL_UINT, 32, shape, ndim);
}

DLTensor tensor_i32(int32_t* data, int64_t* shape, int32_t ndim) {
  return tensor_of(data, QUIRE_DL_INT, 32, shape, ndim);
}

DLTensor tensor_bytes(uint8_t* data, uint8_t code, int64_t* shape, int32_t ndim) {
  return tensor_of(data, code, 8, shape, ndim);
}

void fill(float* data, int64_t count, uint32_t seed) {
  uint32_t state = seed * 2654435761u + 1u;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
  }
}

float e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int fraction = code & 7;
  const float size =
      exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
  return (code & 128) != 0 ? -size : size;
}

uint8_t e4m3_code(float value) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 127) != 127 && e4m3_value((uint8_t)code) == value) return (uint8_t)code;
  }
  return 127;  // NaN
}

static DLTensor pool_of(batch* made, void* data, int64_t row, row_kind kind, int64_t* shape) {
  const int64_t sizes[] = {NUM_PAGES, made->kv, NUM_LAYERS, PAGE_SIZE, made->heads, row};
  memcpy(shape, sizes, sizeof sizes);
  return tensor_of(data, kind.code, kind.bits, shape, 6);
}

void make_batch(batch* made, int64_t kv, int64_t heads, row_kind kind) {
  *made = (batch){.row_offsets = {0, 3, 4},
                  .cache_lengths = {2, 5},
                  .page_table = {{3, 1}, {0, 4}},
                  .shapes = {{BATCH + 1}, {BATCH}, {BATCH, MAX_PAGES}},
                  .row = kind.row,
                  .row_bytes = kind.row * kind.bits / 8,
                  .kv = kv,
                  .heads = heads};
  const int64_t rows = NUM_PAGES * kv * NUM_LAYERS * PAGE_SIZE * heads;
  made->num_bytes = rows * made->row_bytes;
  made->pool = calloc((size_t)made->num_bytes, 1);
  if (kind.code == QUIRE_DL_FLOAT && kind.bits == 32) fill(made->pool, rows * kind.row, 5);
  made->offsets = tensor_u32(made->row_offsets, made->shapes[0], 1);
  made->lengths = tensor_u32(made->cache_lengths, made->shapes[1], 1);
  made->table = tensor_u32(made->page_table[0], made->shapes[2], 2);
  made->blocks = pool_of(made, made->pool, kind.row, kind, made->shapes[3]);
  made->cache = (quire_cache){.struct_size = sizeof(quire_cache),
                              .blocks = &made->blocks,
                              .cache_lengths = &made->lengths,
                              .page_table = &made->table};
}

void add_scales(batch* made) {
  const int64_t rows = NUM_PAGES * made->kv * NUM_LAYERS * PAGE_SIZE * made->heads;
  made->scale_pool = malloc((size_t)rows * sizeof(float));
  for (int64_t i = 0; i < rows; ++i) made->scale_pool[i] = 1.0f;
  made->scales =
      pool_of(made, made->scale_pool, 1, (row_kind){1, QUIRE_DL_FLOAT, 32}, made->shapes[4]);
  made->cache.scales = &made->scales;
}

void free_batch(batch* made) {
  free(made->pool);
  free(made->scale_pool);
}

int sequence_of(const batch* from, int token) {
  return (uint32_t)token < from->row_offsets[1] ? 0 : 1;
}

int position_of(const batch* from, int token) {
  const int sequence = sequence_of(from, token);
  return (int)from->cache_lengths[sequence] + token - (int)from->row_offsets[sequence];
}

static int64_t row_number(const batch* from, int side, int sequence, int position, int head) {
  const int64_t page = from->page_table[sequence][position / PAGE_SIZE];
  const int64_t plane = (page * from->kv + side) * NUM_LAYERS + LAYER;
  return (plane * PAGE_SIZE + position % PAGE_SIZE) * from->heads + head;
}

void* row_at(const batch* from, int side, int sequence, int position, int head) {
  return (char*)from->pool + row_number(from, side, sequence, position, head) * from->row_bytes;
}

float* scale_at(const batch* from, int side, int sequence, int position, int head) {
  return from->scale_pool + row_number(from, side, sequence, position, head);
}

void attend(const float* q, int64_t width, const float* const* keys, const float* const* values,
            int count, double scale, float* out, int64_t value_width) {
  double weights[64];
  double sum = 0.0;
  for (int t = 0; t < count; ++t) {
    double score = 0.0;
    for (int64_t d = 0; d < width; ++d) score += (double)q[d] * (double)keys[t][d];
    weights[t] = exp(scale * score);
    sum += weights[t];
  }
  for (int64_t d = 0; d < value_width; ++d) {
    double value = 0.0;
    for (int t = 0; t < count; ++t) value += weights[t] * (double)values[t][d];
    out[d] = (float)(value / sum);
  }
}
