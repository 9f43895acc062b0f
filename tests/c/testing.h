// SPDX-License-Identifier: Apache-2.0
// What the C tests share: checks with the line where they stand, tensors, and a small ragged batch over a paged cache.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quire/c/quire.h"

// A condition that does not hold is printed with its place, and the program fails in the end.
#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)
#define CHECK_OK(call) check_status((call), QUIRE_OK, #call, __FILE__, __LINE__)
#define CHECK_STATUS(call, status) check_status((call), (status), #call, __FILE__, __LINE__)
// Of the last error: the argument that it names.
#define CHECK_NAMES(op, argument) check_names((op), (argument), __FILE__, __LINE__)
#define CHECK_NEAR(actual, expected, count) \
  check_near((actual), (expected), (count), __FILE__, __LINE__)

void check(bool condition, const char* text, const char* file, int line);
void check_status(quire_status status, quire_status expected, const char* text, const char* file,
                  int line);
void check_names(const char* op, const char* argument, const char* file, int line);
// Within 1e-5 of the larger of 1 and the expected number.
void check_near(const float* actual, const float* expected, int64_t count, const char* file,
                int line);
int num_failures(void);

// SHAPE(2, 3): the sizes, which live in the enclosing block, and how many there are.
#define SHAPE(...) \
  (int64_t[]){__VA_ARGS__}, (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

DLTensor tensor_f32(float* data, int64_t* shape, int32_t ndim);
DLTensor tensor_u32(uint32_t* data, int64_t* shape, int32_t ndim);
DLTensor tensor_i32(int32_t* data, int64_t* shape, int32_t ndim);
DLTensor tensor_bytes(uint8_t* data, uint8_t code, int64_t* shape, int32_t ndim);  // 8 bits each

// Numbers in [-1, 1), the same for the same seed.
void fill(float* data, int64_t count, uint32_t seed);
float e4m3_value(uint8_t code);
uint8_t e4m3_code(float value);  // of a number that has one

// Two sequences: 3 new tokens after 2 cached ones, 1 after 5; pages of 4 tokens.
enum {
  BATCH = 2,
  TOKENS = 4,
  PAGE_SIZE = 4,
  NUM_PAGES = 5,
  MAX_PAGES = 2,
  NUM_LAYERS = 2,
  LAYER = 1
};

typedef struct batch {
  uint32_t row_offsets[BATCH + 1];
  uint32_t cache_lengths[BATCH];
  uint32_t page_table[BATCH][MAX_PAGES];
  int64_t shapes[5][6];
  DLTensor offsets;  // of row_offsets
  DLTensor lengths;
  DLTensor table;
  DLTensor blocks;
  DLTensor scales;
  quire_cache cache;
  int64_t row;        // elements
  int64_t row_bytes;  // of the pool
  int64_t kv;
  int64_t heads;
  int64_t num_bytes;
  void* pool;
  float* scale_pool;  // one for each row; NULL without scales
} batch;

// What a row is: `row` numbers of a dtype (code, bits).
typedef struct row_kind {
  int64_t row;
  uint8_t code;
  uint8_t bits;
} row_kind;

// f32 rows are random, others zero. free_batch gives the memory back.
void make_batch(batch* made, int64_t kv, int64_t heads, row_kind kind);
void add_scales(batch* made);  // f32, one for a row, all 1
void free_batch(batch* made);

// Which sequence a new token belongs to, and its position in it.
int sequence_of(const batch* from, int token);
int position_of(const batch* from, int token);
void* row_at(const batch* from, int side, int sequence, int position, int head);
float* scale_at(const batch* from, int side, int sequence, int position, int head);

// softmax(scale * q · keys) · values over `count` rows; widths of q and out.
void attend(const float* q, int64_t width, const float* const* keys, const float* const* values,
            int count, double scale, float* out, int64_t value_width);
