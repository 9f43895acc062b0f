// SPDX-License-Identifier: Apache-2.0
// A kernel tile of 128 rows cannot be one run of memory in pages of 64.
// expect: a tile lies in one page
#include "quire/paged_kv_operand.h"

#if defined(QUIRE_MUST_FAIL)
constexpr int kTile = 128;
#else
constexpr int kTile = 32;
#endif

using Keys = quire::PagedKvOperand<quire::KvOperandConfig{.page_size = 64}>;

const std::byte* first_row(const Keys& keys) {
  return keys.block_paged_ptr<kTile>(0, 0, 0);
}
