// SPDX-License-Identifier: Apache-2.0
// What would run, and a call that is planned once and run often. These functions take any op; `args` is its struct, of
// QUIRE_OP_ROPE a quire_rope_args.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "quire/c/context.h"
#include "quire/c/export.h"
#include "quire/c/status.h"

typedef int32_t quire_op;

enum {
  QUIRE_OP_FUSED_QKV_MATMUL = 1,
  QUIRE_OP_FLASH_ATTENTION = 2,
  QUIRE_OP_MERGE_STATES = 3,
  QUIRE_OP_MLA_PREFILL_PLAN = 4,
  QUIRE_OP_MLA_PREFILL = 5,
  QUIRE_OP_MLA_DECODE = 6,
  QUIRE_OP_MLA_INDEXER = 7,
  QUIRE_OP_SPARSE_MLA = 8,
  QUIRE_OP_REMAP_SPARSE_INDICES = 9,
  QUIRE_OP_STORE_INDEX_KEYS = 10,
  QUIRE_OP_QUANTIZE_INDEX_QUERIES = 11,
  QUIRE_OP_ROPE = 12,
  QUIRE_OP_RMS_NORM_KEY = 13,
  QUIRE_OP_RMS_NORM_VALUE = 14,
  QUIRE_OP_STORE = 15,
  QUIRE_OP_STORE_SCALES = 16,
  QUIRE_OP_COPY_PAGES = 17,
  QUIRE_OP_QUANTIZE_FP8 = 18,
  QUIRE_OP_ROW_OFFSETS = 19,
  QUIRE_OP_LINEAR = 20,
  QUIRE_OP_COMPRESS_KEYS = 21,
  QUIRE_OP_SELECT_BLOCKS = 22,
};

// "rope"; NULL for a number that is no op. Numbers have no gaps: 1, 2, … up to the last.
QUIRE_C_API const char* quire_op_name(quire_op op);

// Checks a call without running it. QUIRE_OK: a kernel takes it. QUIRE_UNSUPPORTED: none does. `text`, if not NULL, gets one
// line in both cases, cut to text_bytes: the kernel and what it chose, or the reason of each kernel and the nearest
// problem that one takes.
QUIRE_C_API quire_status quire_supports(quire_op op, const void* args, const quire_context* context,
                                        char* text, size_t text_bytes);

// Scratch that the call needs in context.workspace.
QUIRE_C_API quire_status quire_workspace_bytes(quire_op op, const void* args,
                                               const quire_context* context, int64_t* bytes);

// An op with the kernel that was chosen for it, without addresses. It never changes: any number of threads may run one at
// once, each with a workspace of its own.
typedef struct quire_prepared quire_prepared;

// QUIRE_UNSUPPORTED where no kernel takes the call. The caller frees what it gets.
QUIRE_C_API quire_status quire_prepare(quire_op op, const void* args, const quire_context* context,
                                       quire_prepared** prepared);

// Runs it with arguments of the same sizes, dtypes and kinds, and other addresses and contents; lengths on the host may
// be shorter than the prepared ones. Arguments of another problem are refused.
QUIRE_C_API quire_status quire_run(const quire_prepared* prepared, const void* args,
                                   const quire_context* context);

QUIRE_C_API int64_t quire_prepared_workspace_bytes(const quire_prepared* prepared);  // -1 of NULL
// The line of quire_supports; valid as long as the handle. "" of NULL.
QUIRE_C_API const char* quire_prepared_describe(const quire_prepared* prepared);
QUIRE_C_API void quire_prepared_free(quire_prepared* prepared);  // NULL is taken
