// SPDX-License-Identifier: Apache-2.0
// One step of a batch from C: new keys and values into the pages, then attention over them. Two sequences share a pool of
// four pages; the first has 3 cached tokens, the second none and 2 new ones.
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "quire/c/quire.h"

enum {
  PAGES = 4,
  PAGE_SIZE = 4,
  HEADS = 4,
  KV_HEADS = 2,
  HEAD_DIM = 8,
  TOKENS = 3,
  BATCH = 2,
  MAX_PAGES = 2
};

// A contiguous tensor on the CPU; the shape lives as long as the caller's block.
#define TENSOR(memory, type_code, type_bits, ...)                          \
  {                                                                        \
    .data = (memory), .device = {QUIRE_DL_CPU, 0},                         \
    .ndim = (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
    .dtype = {(type_code), (type_bits), 1}, .shape = (int64_t[]) {         \
      __VA_ARGS__                                                          \
    }                                                                      \
  }

static float pool[PAGES][2][1][PAGE_SIZE][KV_HEADS][HEAD_DIM];  // K and V of one layer

static int failed(const char* what, quire_status status) {
  if (status == QUIRE_OK) return 0;
  fprintf(stderr, "%s: status %d, %s\n", what, (int)status, quire_last_error());
  return 1;
}

int main(void) {
  uint32_t offsets[BATCH + 1] = {0, 1, 3};                      // 1 new token, then 2
  uint32_t cached[BATCH] = {3, 0};                              // before this step
  uint32_t pages[BATCH][MAX_PAGES] = {{2, PAGES}, {0, PAGES}};  // an id of PAGES: no page yet
  float rows[TOKENS][KV_HEADS][HEAD_DIM], q[TOKENS][HEADS][HEAD_DIM], out[TOKENS][HEADS][HEAD_DIM];
  for (int token = 0; token < TOKENS; ++token) {
    for (int d = 0; d < HEAD_DIM; ++d) {
      for (int head = 0; head < KV_HEADS; ++head) rows[token][head][d] = (float)(token + 1);
      for (int head = 0; head < HEADS; ++head) q[token][head][d] = 0.1f * (float)d;
    }
  }

  DLTensor blocks = TENSOR(pool, QUIRE_DL_FLOAT, 32, PAGES, 2, 1, PAGE_SIZE, KV_HEADS, HEAD_DIM);
  DLTensor lengths = TENSOR(cached, QUIRE_DL_UINT, 32, BATCH);
  DLTensor table = TENSOR(pages, QUIRE_DL_UINT, 32, BATCH, MAX_PAGES);
  DLTensor row_offsets = TENSOR(offsets, QUIRE_DL_UINT, 32, BATCH + 1);
  DLTensor x = TENSOR(rows, QUIRE_DL_FLOAT, 32, TOKENS, KV_HEADS, HEAD_DIM);
  DLTensor queries = TENSOR(q, QUIRE_DL_FLOAT, 32, TOKENS, HEADS, HEAD_DIM);
  DLTensor result = TENSOR(out, QUIRE_DL_FLOAT, 32, TOKENS, HEADS, HEAD_DIM);
  const quire_cache cache = {.struct_size = sizeof cache,
                             .blocks = &blocks,
                             .cache_lengths = &lengths,
                             .page_table = &table};

  // Everything that is not set has its default.
  quire_store_args store = {
      .struct_size = sizeof store, .x = &x, .row_offsets = &row_offsets, .cache = &cache};
  if (failed("keys", quire_store(&store, NULL))) return 1;
  store.side = QUIRE_SIDE_VALUE;
  if (failed("values", quire_store(&store, NULL))) return 1;

  const quire_flash_attention_args attention = {.struct_size = sizeof attention,
                                                .q = &queries,
                                                .row_offsets = &row_offsets,
                                                .cache = &cache,
                                                .out = &result};
  char plan[256];
  if (failed("plan", quire_supports(QUIRE_OP_FLASH_ATTENTION, &attention, NULL, plan, sizeof plan)))
    return 1;
  printf("%s\n", plan);

  // Planned once, run every step.
  quire_prepared* prepared = NULL;
  quire_status status = quire_prepare(QUIRE_OP_FLASH_ATTENTION, &attention, NULL, &prepared);
  if (failed("prepare", status)) return 1;
  status = quire_run(prepared, &attention, NULL);
  quire_prepared_free(prepared);
  if (failed("attention", status)) return 1;

  // The second sequence's first token sees itself alone: its output is its own V row.
  printf("out[1] = %g, its V row is %g\n", (double)out[1][0][0], (double)rows[1][0][0]);
  return fabsf(out[1][0][0] - rows[1][0][0]) < 1e-6f ? 0 : 1;
}
