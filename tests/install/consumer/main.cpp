// SPDX-License-Identifier: Apache-2.0
// An op of the library, and its exception, which a program must be able to catch by its type.
#include <cstdint>

#include "quire/error.h"
#include "quire/quire.h"

int main() {
  std::uint32_t new_tokens[] = {0, 2, 3}, cached[] = {5, 7}, keys[3] = {};
  quire::RowOffsetsArgs args{
      .row_offsets = quire::TensorView::contiguous(new_tokens, quire::DType::u32, {3}),
      .cache_lengths = quire::TensorView::contiguous(cached, quire::DType::u32, {2}),
      .out = quire::TensorView::contiguous(keys, quire::DType::u32, {3})};
  quire::row_offsets(args);
  if (keys[0] != 0 || keys[1] != 7 || keys[2] != 15) return 1;
  try {
    args.out.dtype = quire::DType::f32;
    quire::row_offsets(args);
  } catch (const quire::Error& error) {
    return error.op() == "row_offsets" ? 0 : 2;
  }
  return 3;
}
