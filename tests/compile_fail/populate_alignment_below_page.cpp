// SPDX-License-Identifier: Apache-2.0
// A tile of several pages whose base is not promised to start a page has no row per page.
// expect: a tile of several pages starts at a page
#include "quire/paged_kv_operand.h"

#if defined(QUIRE_MUST_FAIL)
constexpr int kBaseAlignment = 32;
#else
constexpr int kBaseAlignment = 64;
#endif

using Keys = quire::PagedKvOperand<quire::KvOperandConfig{.page_size = 64}>;

std::uint32_t second_page(const Keys& keys) {
  return keys.populate<128, kBaseAlignment>(0, 0).rows[1];
}
