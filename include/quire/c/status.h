// SPDX-License-Identifier: Apache-2.0
// What a call returns, what went wrong, and which interface the library has.
#pragma once

#include <stdint.h>

#include "quire/c/export.h"

// The first number of the C interface: docs/c_interface.md says what does not change while it stays.
enum { QUIRE_C_ABI_VERSION = 1 };

typedef int32_t quire_status;

enum {
  QUIRE_OK = 0,
  QUIRE_INVALID_VALUE = 1,  // shape, range, stride, contents, a NULL where something must be
  QUIRE_INVALID_TYPE = 2,   // dtype, kind of device
  QUIRE_UNSUPPORTED = 3,    // valid, but no kernel serves it
  QUIRE_RUNTIME = 4,        // a device or the system failed
  QUIRE_OUT_OF_MEMORY = 5,
  QUIRE_INTERNAL = 6,  // an exception that Quire does not know: a defect
};

// Parts of the last error.
enum {
  QUIRE_ERROR_OP = 0,        // "fused_qkv_matmul"
  QUIRE_ERROR_ARGUMENT = 1,  // "weight"
  QUIRE_ERROR_EXPECTED = 2,  // "bf16[6144, 4096]"
  QUIRE_ERROR_ACTUAL = 3,    // "bf16[4096, 6144]"
};

// Of the last call on this thread that did not return QUIRE_OK; "" before the first. Valid until the next such call.
//   fused_qkv_matmul: 'weight' must be bf16[6144, 4096], got bf16[4096, 6144]
QUIRE_C_API const char* quire_last_error(void);
// A part of it, "" where it has none.
QUIRE_C_API const char* quire_last_error_part(int32_t part);

// QUIRE_C_ABI_VERSION of the library; a program that loads it at run time compares.
QUIRE_C_API int32_t quire_c_abi_version(void);
// Of the library: "0.1.0".
QUIRE_C_API const char* quire_version(void);
