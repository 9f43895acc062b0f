// SPDX-License-Identifier: Apache-2.0
// What the border itself does: described rows, errors as status, sizes of structs, prepared calls, a caller's threads.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "tests.h"

enum {
  HEADS = 2,
  WIDTH = 8,
  LATENT = 16,
  ROPE = 8,
  BLOCK = 8,
  ROW_BYTES = LATENT + 2 * 4 + 2 * ROPE
};

// fp8 latent with a scale for 8 columns behind it, then rope in bf16: DeepSeek's row in small.
void test_row_format(void) {
  batch into;
  make_batch(&into, 1, 1, (row_kind){ROW_BYTES, QUIRE_DL_UINT, 8});
  quire_row_part parts[] = {{.struct_size = sizeof parts[0],
                             .dtype = QUIRE_DTYPE_FP8_E4M3,
                             .width = LATENT,
                             .scale_source = QUIRE_SCALE_SOURCE_IN_ROW,
                             .granularity = BLOCK,
                             .scale_offset_bytes = LATENT},
                            {.struct_size = sizeof parts[0],
                             .dtype = QUIRE_DTYPE_BF16,
                             .width = ROPE,
                             .offset_bytes = LATENT + 2 * 4}};
  const quire_row_format format = {
      .struct_size = sizeof format, .parts = parts, .num_parts = 2, .row_bytes = ROW_BYTES};
  into.cache.row_format = &format;
  float x[TOKENS][LATENT + ROPE];
  fill(x[0], TOKENS * (LATENT + ROPE), 18);
  DLTensor x_view = tensor_f32(x[0], SHAPE(TOKENS, 1, LATENT + ROPE));
  const quire_store_args args = {.struct_size = sizeof args,
                                 .x = &x_view,
                                 .row_offsets = &into.offsets,
                                 .cache = &into.cache,
                                 .layer = LAYER};
  CHECK_OK(quire_store(&args, NULL));
  for (int token = 0; token < TOKENS; ++token) {
    const uint8_t* row = row_at(&into, 0, sequence_of(&into, token), position_of(&into, token), 0);
    float scales[2];
    memcpy(scales, row + LATENT, sizeof scales);
    for (int d = 0; d < LATENT; ++d) {
      const float value = e4m3_value(row[d]) * scales[d / BLOCK];
      CHECK(fabsf(value - x[token][d]) <= fabsf(x[token][d]) / 16.0f + scales[d / BLOCK] / 512.0f);
    }
    for (int d = 0; d < ROPE; ++d) {
      const uint8_t* half = row + LATENT + 2 * 4 + 2 * d;
      const uint32_t bits = (uint32_t)half[0] << 16 | (uint32_t)half[1] << 24;
      float value = 0.0f;
      memcpy(&value, &bits, sizeof value);
      CHECK(fabsf(value - x[token][LATENT + d]) <= fabsf(x[token][LATENT + d]) / 256.0f);
    }
  }

  parts[1].offset_bytes = 4;
  CHECK_STATUS(quire_store(&args, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("store", "cache.row_format.parts");
  parts[1].dtype = 99;
  CHECK_STATUS(quire_store(&args, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("store", "cache.row_format.parts[1].dtype");
  free_batch(&into);
}

typedef struct attention {
  batch over;
  float q[TOKENS * HEADS * WIDTH];
  float out[TOKENS * HEADS * WIDTH];
  int64_t shape[3];
  DLTensor q_view;
  DLTensor out_view;
  quire_flash_attention_args args;
} attention;

static void make_attention(attention* made) {
  memset(made, 0, sizeof *made);
  make_batch(&made->over, 2, HEADS, (row_kind){WIDTH, QUIRE_DL_FLOAT, 32});
  fill(made->q, TOKENS * HEADS * WIDTH, 19);
  made->shape[0] = TOKENS, made->shape[1] = HEADS, made->shape[2] = WIDTH;
  made->q_view = tensor_f32(made->q, made->shape, 3);
  made->out_view = tensor_f32(made->out, made->shape, 3);
  made->args = (quire_flash_attention_args){.struct_size = sizeof made->args,
                                            .q = &made->q_view,
                                            .row_offsets = &made->over.offsets,
                                            .cache = &made->over.cache,
                                            .layer = LAYER,
                                            .out = &made->out_view};
}

static void expect_refusal(const quire_flash_attention_args* args, quire_status status,
                           const char* argument) {
  CHECK_STATUS(quire_flash_attention(args, NULL), status);
  CHECK_NAMES("flash_attention", argument);
}

static void test_bad_tensors(attention* with) {
  const DLTensor good = with->q_view;
  DLTensor* q = &with->q_view;
  q->dtype.lanes = 2;
  expect_refusal(&with->args, QUIRE_INVALID_TYPE, "q");
  *q = good, q->dtype.code = 99;
  expect_refusal(&with->args, QUIRE_INVALID_TYPE, "q");
  *q = good, q->device.device_type = 99;
  expect_refusal(&with->args, QUIRE_INVALID_TYPE, "q");
  *q = good, q->ndim = 7;
  expect_refusal(&with->args, QUIRE_INVALID_VALUE, "q");
  *q = good, q->ndim = -1;
  expect_refusal(&with->args, QUIRE_INVALID_VALUE, "q");
  *q = good, q->shape = NULL;
  expect_refusal(&with->args, QUIRE_INVALID_VALUE, "q");
  *q = good, q->data = NULL;
  expect_refusal(&with->args, QUIRE_INVALID_VALUE, "q");
  int64_t huge[] = {INT64_MAX, INT64_MAX, INT64_MAX};
  *q = good, q->shape = huge;
  expect_refusal(&with->args, QUIRE_INVALID_VALUE, "q");
  *q = good, q->dtype.bits = 64;
  expect_refusal(&with->args, QUIRE_INVALID_TYPE, "q");
  CHECK(strcmp(quire_last_error_part(QUIRE_ERROR_ACTUAL), "DLPack code 2 of 64 bits, 1 lanes") ==
        0);
  CHECK(strncmp(quire_last_error_part(QUIRE_ERROR_EXPECTED), "float32, ", 9) == 0);
  CHECK(strncmp(quire_last_error(), "flash_attention: 'q' must be float32, ", 38) == 0);
  CHECK(strcmp(quire_last_error_part(99), "") == 0);
  *q = good;
}

void test_errors(void) {
  attention with;
  make_attention(&with);
  CHECK_STATUS(quire_flash_attention(NULL, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("flash_attention", "args");
  test_bad_tensors(&with);

  quire_flash_attention_args bad = with.args;
  bad.q = NULL;
  expect_refusal(&bad, QUIRE_INVALID_VALUE, "q");
  bad = with.args, bad.cache = NULL;
  expect_refusal(&bad, QUIRE_INVALID_VALUE, "cache");
  bad = with.args, bad.layer = NUM_LAYERS;
  expect_refusal(&bad, QUIRE_INVALID_VALUE, "layer");
  bad = with.args, bad.batch_invariant = 2;
  expect_refusal(&bad, QUIRE_INVALID_VALUE, "batch_invariant");

  quire_mask circle = {
      .struct_size = sizeof circle, .kind = QUIRE_MASK_ALL_OF, .left = &circle, .right = &circle};
  bad = with.args, bad.mask = &circle;
  expect_refusal(&bad, QUIRE_INVALID_VALUE, "mask");
  circle.right = NULL, circle.left = NULL;
  expect_refusal(&bad, QUIRE_INVALID_VALUE, "mask.left");
  circle.kind = QUIRE_MASK_KEY_INTERVALS;
  expect_refusal(&bad, QUIRE_INVALID_VALUE, "mask.begin");
  circle.kind = 99;
  expect_refusal(&bad, QUIRE_INVALID_VALUE, "mask.kind");

  const quire_context nowhere = {.struct_size = sizeof nowhere, .kernel = "nowhere"};
  CHECK_STATUS(quire_flash_attention(&with.args, &nowhere), QUIRE_UNSUPPORTED);
  const quire_context too_many = {.struct_size = sizeof too_many, .num_threads = 1 << 20};
  CHECK_STATUS(quire_flash_attention(&with.args, &too_many), QUIRE_INVALID_VALUE);
  CHECK_NAMES("flash_attention", "context.num_threads");
  for (int i = 0; i < TOKENS * HEADS * WIDTH; ++i)
    CHECK(with.out[i] == 0.0f);  // nothing was written
  free_batch(&with.over);
}

void test_struct_sizes(void) {
  attention with;
  make_attention(&with);
  CHECK_OK(quire_flash_attention(&with.args, NULL));
  float expected[TOKENS * HEADS * WIDTH];
  memcpy(expected, with.out, sizeof expected);

  // A program of an older header: what it does not know has its default, whatever stands behind its struct.
  quire_flash_attention_args shorter = with.args;
  memset((char*)&shorter + offsetof(quire_flash_attention_args, softcap), 0xAB,
         sizeof shorter - offsetof(quire_flash_attention_args, softcap));
  shorter.struct_size = offsetof(quire_flash_attention_args, softcap);
  memset(with.out, 0, sizeof with.out);
  CHECK_OK(quire_flash_attention(&shorter, NULL));
  CHECK(memcmp(with.out, expected, sizeof expected) == 0);
  shorter.struct_size = offsetof(quire_flash_attention_args, out);
  expect_refusal(&shorter, QUIRE_INVALID_VALUE, "args.struct_size");

  // One of a newer header: taken as long as it asks for nothing new.
  struct {
    quire_flash_attention_args args;
    int64_t newer[2];
  } longer = {.args = with.args};
  longer.args.struct_size = sizeof longer;
  memset(with.out, 0, sizeof with.out);
  CHECK_OK(quire_flash_attention(&longer.args, NULL));
  CHECK(memcmp(with.out, expected, sizeof expected) == 0);
  longer.newer[1] = 1;
  expect_refusal(&longer.args, QUIRE_INVALID_VALUE, "args.struct_size");

  static const size_t kBad[] = {0, 3, 8, sizeof(quire_flash_attention_args) - 4, (size_t)1 << 40};
  for (size_t i = 0; i < sizeof kBad / sizeof kBad[0]; ++i) {
    quire_flash_attention_args bad = with.args;
    bad.struct_size = kBad[i];
    expect_refusal(&bad, QUIRE_INVALID_VALUE, "args.struct_size");
  }
  with.over.cache.struct_size = 16;
  expect_refusal(&with.args, QUIRE_INVALID_VALUE, "cache.struct_size");
  free_batch(&with.over);
}

static int64_t tasks_run = 0;

static void run_backwards(void* user, int64_t tasks, quire_task task, void* data) {
  CHECK(user == &tasks_run);
  for (int64_t i = tasks; i-- > 0;) task(data, i);
  tasks_run += tasks;
}

static void test_supports(const attention* with) {
  char text[512];
  CHECK_OK(quire_supports(QUIRE_OP_FLASH_ATTENTION, &with->args, NULL, text, sizeof text));
  CHECK(strstr(text, "flash_attention: cpu/") == text);
  CHECK_OK(quire_supports(QUIRE_OP_FLASH_ATTENTION, &with->args, NULL, NULL, 0));
  CHECK_OK(quire_supports(QUIRE_OP_FLASH_ATTENTION, &with->args, NULL, text, 16));
  CHECK(strcmp(text, "flash_attention") == 0);

  const quire_context hopper = {.struct_size = sizeof hopper, .kernel = "cuda"};
  CHECK_STATUS(quire_supports(QUIRE_OP_FLASH_ATTENTION, &with->args, &hopper, text, sizeof text),
               QUIRE_UNSUPPORTED);
  CHECK(strstr(text, "flash_attention: no kernel; ") == text && strstr(text, "refuses: ") != NULL);
  CHECK_NAMES("flash_attention", "problem");
  CHECK_STATUS(quire_supports(99, &with->args, NULL, NULL, 0), QUIRE_INVALID_VALUE);
  CHECK_NAMES("supports", "op");

  int64_t bytes = -1;
  CHECK_OK(quire_workspace_bytes(QUIRE_OP_FLASH_ATTENTION, &with->args, NULL, &bytes));
  CHECK(bytes == 0);  // a CPU op keeps its own scratch
  int last = 0;
  while (quire_op_name(last + 1) != NULL) ++last;
  CHECK(last == QUIRE_OP_SELECT_BLOCKS && quire_op_name(0) == NULL);
  CHECK(strcmp(quire_op_name(QUIRE_OP_MLA_DECODE), "mla_decode") == 0);
}

void test_prepared(void) {
  attention with;
  make_attention(&with);
  test_supports(&with);
  CHECK_OK(quire_flash_attention(&with.args, NULL));
  float expected[TOKENS * HEADS * WIDTH];
  memcpy(expected, with.out, sizeof expected);

  quire_prepared* prepared = NULL;
  CHECK_OK(quire_prepare(QUIRE_OP_FLASH_ATTENTION, &with.args, NULL, &prepared));
  CHECK(quire_prepared_workspace_bytes(prepared) == 0);
  CHECK(strstr(quire_prepared_describe(prepared), "flash_attention: cpu/") ==
        quire_prepared_describe(prepared));
  quire_context own_threads = {.struct_size = sizeof own_threads,
                               .num_threads = 4,
                               .parallel_for = run_backwards,
                               .parallel_for_user = &tasks_run};
  const quire_context* contexts[] = {NULL, &own_threads};
  for (int i = 0; i < 2; ++i) {
    memset(with.out, 0, sizeof with.out);
    CHECK_OK(quire_run(prepared, &with.args, contexts[i]));
    CHECK(memcmp(with.out, expected, sizeof expected) == 0);
  }
  CHECK(tasks_run > 0);

  // Other contents at other addresses are of the same problem, other sizes are not.
  float other[TOKENS * HEADS * WIDTH];
  memcpy(other, with.q, sizeof other);
  fill(with.q, TOKENS * HEADS * WIDTH, 20);
  with.q_view.data = other;
  CHECK_OK(quire_run(prepared, &with.args, NULL));
  CHECK(memcmp(with.out, expected, sizeof expected) == 0);
  quire_flash_attention_args softer = with.args;
  softer.softcap = 3.0;
  CHECK_STATUS(quire_run(prepared, &softer, NULL), QUIRE_INVALID_VALUE);
  CHECK_NAMES("flash_attention", "arguments");

  const quire_context nowhere = {.struct_size = sizeof nowhere, .kernel = "nowhere"};
  quire_prepared* none = NULL;
  CHECK_STATUS(quire_prepare(QUIRE_OP_FLASH_ATTENTION, &with.args, &nowhere, &none),
               QUIRE_UNSUPPORTED);
  CHECK(none == NULL);
  CHECK_STATUS(quire_prepare(QUIRE_OP_FLASH_ATTENTION, &with.args, NULL, NULL),
               QUIRE_INVALID_VALUE);
  CHECK_STATUS(quire_run(NULL, &with.args, NULL), QUIRE_INVALID_VALUE);
  CHECK(quire_prepared_workspace_bytes(NULL) == -1 &&
        strcmp(quire_prepared_describe(NULL), "") == 0);
  quire_prepared_free(prepared);
  quire_prepared_free(NULL);
  free_batch(&with.over);
}
