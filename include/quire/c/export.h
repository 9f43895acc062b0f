// SPDX-License-Identifier: Apache-2.0
// Every function of the C interface is declared with QUIRE_C_API: C linkage, and visible in libquire.so.
#pragma once

#if defined(__cplusplus)
#define QUIRE_C_API extern "C" __attribute__((visibility("default")))
#else
#define QUIRE_C_API extern __attribute__((visibility("default")))
#endif
