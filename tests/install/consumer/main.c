// SPDX-License-Identifier: Apache-2.0
// An op of the C interface, and the error that a program gets as a status.
#include <stdint.h>
#include <string.h>

#include "quire/c/quire.h"

int main(void) {
  uint32_t new_tokens[] = {0, 2, 3}, cached[] = {5, 7}, keys[3] = {0};
  int64_t sizes[] = {3, 2};
  const DLDataType u32 = {QUIRE_DL_UINT, 32, 1};
  const DLDevice cpu = {QUIRE_DL_CPU, 0};
  DLTensor offsets = {
      .data = new_tokens, .device = cpu, .ndim = 1, .dtype = u32, .shape = &sizes[0]};
  DLTensor lengths = {.data = cached, .device = cpu, .ndim = 1, .dtype = u32, .shape = &sizes[1]};
  DLTensor out = {.data = keys, .device = cpu, .ndim = 1, .dtype = u32, .shape = &sizes[0]};
  quire_row_offsets_args args = {
      .struct_size = sizeof args, .row_offsets = &offsets, .cache_lengths = &lengths, .out = &out};
  if (quire_row_offsets(&args, NULL) != QUIRE_OK) return 1;
  if (keys[0] != 0 || keys[1] != 7 || keys[2] != 15) return 2;
  out.dtype.code = QUIRE_DL_FLOAT;
  if (quire_row_offsets(&args, NULL) != QUIRE_INVALID_TYPE) return 3;
  return strcmp(quire_last_error_part(QUIRE_ERROR_OP), "row_offsets") == 0 ? 0 : 4;
}
