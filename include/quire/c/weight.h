// SPDX-License-Identifier: Apache-2.0
// A projection weight W [N, K] (rows of Wq, then Wk, then Wv), plain, quantized or packed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "quire/c/context.h"
#include "quire/c/dlpack.h"
#include "quire/c/export.h"
#include "quire/c/status.h"

enum {
  QUIRE_WEIGHT_BY_DTYPE = 0,  // dense, or fp8 where data is
  QUIRE_WEIGHT_DENSE = 1,     // data f32, f16 or bf16 [N, K]
  QUIRE_WEIGHT_FP8 = 2,  // data fp8 [N, K]; scale f32 [1, 1], [N, 1] or [ceil(N/128), ceil(K/128)]
  // (code - zero) * scale: data u4 [N, K], or u8 [N, K/2] with the even code in the low nibble; scale [N, K/g];
  // zeros u8 [N, K/g] or none (= 8)
  QUIRE_WEIGHT_INT4 = 3,
  QUIRE_WEIGHT_GPTQ =
      4,  // data i32 [K/8, N]; scale [K/g, N]; zeros i32 [K/g, N/8] stored minus one, or none (= 8)
  QUIRE_WEIGHT_GPTQ_V2 = 5,  // the same with zeros stored as they are
  QUIRE_WEIGHT_AWQ =
      6,  // data i32 [K, N/8], nibbles in the order 0 2 4 6 1 3 5 7; scale [K/g, N]; zeros i32 [K/g, N/8]
  QUIRE_WEIGHT_Q4_0 = 7,     // GGUF blocks: data u8 [N, K/32 * 18],
  QUIRE_WEIGHT_Q8_0 = 8,     // [N, K/32 * 34],
  QUIRE_WEIGHT_Q4_K = 9,     // [N, K/256 * 144],
  QUIRE_WEIGHT_Q6_K = 10,    // [N, K/256 * 210],
  QUIRE_WEIGHT_Q4_1 = 11,    // [N, K/32 * 20],
  QUIRE_WEIGHT_Q5_0 = 12,    // [N, K/32 * 22],
  QUIRE_WEIGHT_Q5_1 = 13,    // [N, K/32 * 24],
  QUIRE_WEIGHT_Q5_K = 14,    // [N, K/256 * 176],
  QUIRE_WEIGHT_IQ4_NL = 15,  // [N, K/32 * 18],
  QUIRE_WEIGHT_MXFP4 = 16,   // [N, K/32 * 17]
};

// The order of a packed weight's numbers. One order belongs to one family of kernels.
enum {
  QUIRE_PACKING_NONE = 0,
  QUIRE_PACKING_PANELS_8 = 1,
  QUIRE_PACKING_PANELS_16 = 2,
  QUIRE_PACKING_PANELS_32 = 3,
  QUIRE_PACKING_QUADS_8 = 4,
  QUIRE_PACKING_FRAGMENTS_64 = 5,
};

// A weight in the order in which the kernels of its device read it. A handle of some bytes; the numbers are in the
// caller's storage, which must stay while it is used.
typedef struct quire_packed_weight quire_packed_weight;

typedef struct quire_weight {
  size_t struct_size;
  const DLTensor* data;
  // The rest is optional.
  const DLTensor* scale;
  const DLTensor* zeros;
  const DLTensor*
      perm;            // act-order, i32 [K]: column k of the stored weight multiplies x[:, perm[k]]
  int64_t group_size;  // int4, gptq, awq: 32, 64 or 128
  int32_t format;      // QUIRE_WEIGHT_*
  int32_t reserved;    // 0
  const quire_packed_weight* packed;  // in place of everything above
} quire_weight;

// What the bytes of a packed weight do not say: kept beside them in a file, it makes the handle again.
typedef struct quire_packed_form {
  size_t struct_size;
  int32_t format;   // QUIRE_WEIGHT_*
  int32_t packing;  // QUIRE_PACKING_*
  int64_t group_size;
  int64_t rows;     // N
  int64_t columns;  // K
  int32_t dtype;    // QUIRE_DTYPE_*: of the numbers (dense, fp8)
  int32_t scale_dtype;
  int64_t scale_group;  // fp8: columns that share a scale, 0: all
  int32_t has_zeros;
  int32_t has_perm;
} quire_packed_form;

// Size of the storage that quire_pack_weight needs; context.kernel narrows the choice of the order.
QUIRE_C_API quire_status quire_packed_bytes(const quire_weight* weight,
                                            const quire_context* context, int64_t* bytes);

// Fills storage, u8 [at least that many] on a 64-byte border of the weight's device, and makes the handle; on a GPU it does
// so on the context's stream. `weight` may go then, `storage` must stay.
QUIRE_C_API quire_status quire_pack_weight(const quire_weight* weight, const DLTensor* storage,
                                           const quire_context* context,
                                           quire_packed_weight** packed);

// struct_size of `form` is set by the caller, the rest is written.
QUIRE_C_API quire_status quire_packed_weight_form(const quire_packed_weight* packed,
                                                  quire_packed_form* form);

// The handle of a weight whose packed bytes are in `storage` already: copied there, or read from a file that this version
// of the library wrote.
QUIRE_C_API quire_status quire_packed_view(const quire_packed_form* form, const DLTensor* storage,
                                           const quire_context* context,
                                           quire_packed_weight** packed);

QUIRE_C_API void quire_packed_weight_free(quire_packed_weight* packed);  // NULL is taken
