// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees, as a tree of structs. q and k are absolute positions: a new token i of a sequence stands at
// cache_length + i. A NULL mask is causal. `causal & sliding_window(n)`, the usual causal window:
//   const quire_mask causal = {.struct_size = sizeof causal, .kind = QUIRE_MASK_CAUSAL};
//   const quire_mask window = {.struct_size = sizeof window, .kind = QUIRE_MASK_SLIDING_WINDOW, .size = n};
//   const quire_mask mask = {.struct_size = sizeof mask, .kind = QUIRE_MASK_ALL_OF, .left = &causal, .right = &window};
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "quire/c/dlpack.h"

enum {
  QUIRE_MASK_CAUSAL = 0,          // k <= q
  QUIRE_MASK_FULL = 1,            // every key
  QUIRE_MASK_SLIDING_WINDOW = 2,  // |q - k| < size
  QUIRE_MASK_CHUNKED = 3,         // q / size == k / size
  QUIRE_MASK_TREE =
      4,  // cached keys, and of the new ones those whose bit is set in the query's row
  QUIRE_MASK_ALL_OF = 5,  // left and right
  QUIRE_MASK_ANY_OF = 6,  // left or right
  QUIRE_MASK_KEY_INTERVALS =
      7,  // begin[query] <= k < end[query]: bounds that every query brings itself
};

typedef struct quire_mask quire_mask;
struct quire_mask {
  size_t struct_size;
  int32_t kind;            // QUIRE_MASK_*
  int32_t reserved;        // 0
  int64_t size;            // sliding_window, chunked
  const DLTensor* bits;    // tree: u8 [tokens, max_new_tokens], nonzero = visible
  const quire_mask* left;  // all_of, any_of; at most 64 masks joined
  const quire_mask* right;
  const DLTensor* begin;  // key_intervals: i32 [tokens], any stride and any values
  const DLTensor* end;    // the same
};
