// SPDX-License-Identifier: Apache-2.0
// DLTensor as DLPack 1.x has it. A program that uses dlpack.h itself includes that first; its definition then serves.
// A DLTensor is a view that the caller fills in, and it is read during the call alone.
#pragma once

#include <stdint.h>

#if !defined(DLPACK_DLPACK_H_)
typedef struct DLDevice {
  int32_t device_type;  // QUIRE_DL_CPU, …
  int32_t device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code;  // QUIRE_DL_FLOAT, …
  uint8_t bits;
  uint16_t lanes;  // 1
} DLDataType;

typedef struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;      // elements; NULL: row-major without gaps
  uint64_t byte_offset;  // of the first element, from data
} DLTensor;
#endif

// Devices that Quire takes, by DLPack's numbers.
enum {
  QUIRE_DL_CPU = 1,
  QUIRE_DL_CUDA = 2,
  QUIRE_DL_CUDA_HOST = 3,  // pinned memory: as on the CPU
  QUIRE_DL_CUDA_MANAGED = 13,
};

// Codes of dtypes that Quire takes, by DLPack's numbers. Where a framework has fp8 numbers as uint8, the caller sets the
// code: the struct is the caller's. Numbers of 4 bits are packed two per byte, the even one in the low nibble.
enum {
  QUIRE_DL_INT = 0,        // 4, 8, 32, 64 bits
  QUIRE_DL_UINT = 1,       // 4, 8, 32 bits
  QUIRE_DL_FLOAT = 2,      // 16, 32 bits
  QUIRE_DL_BFLOAT = 4,     // 16 bits
  QUIRE_DL_BOOL = 6,       // 8 bits: as uint8
  QUIRE_DL_FP8_E4M3 = 10,  // float8_e4m3fn
  QUIRE_DL_FP8_E5M2 = 12,
  QUIRE_DL_FP8_E8M0 = 14,  // float8_e8m0fnu
};
