// SPDX-License-Identifier: Apache-2.0
// There is no scales operand for a cache without scales.
// expect: the cache has no scales
#include "quire/paged_scales_operand.h"

#if defined(QUIRE_MUST_FAIL)
constexpr quire::KvOperandConfig kConfig{.page_size = 64};
#else
constexpr quire::KvOperandConfig kConfig{.page_size = 64, .granularity = 128};
#endif

std::int64_t rows_of(const quire::PagedScalesOperand<kConfig>& scales) {
  return scales.num_kv_rows();
}
