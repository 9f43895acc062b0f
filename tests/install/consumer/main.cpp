// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "quire/quire.h"

int main() {
  std::uint32_t new_tokens[] = {0, 2, 3}, cached[] = {5, 7}, keys[3] = {};
  quire::row_offsets(
      {.row_offsets = quire::TensorView::contiguous(new_tokens, quire::DType::u32, {3}),
       .cache_lengths = quire::TensorView::contiguous(cached, quire::DType::u32, {2}),
       .out = quire::TensorView::contiguous(keys, quire::DType::u32, {3})});
  return keys[0] == 0 && keys[1] == 7 && keys[2] == 15 ? 0 : 1;
}
