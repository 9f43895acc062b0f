// SPDX-License-Identifier: Apache-2.0
// A scheduled step as the tensors that the ops take.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/demo/page_allocator.h"
#include "tools/demo/scheduler.h"
#include "tools/demo/tensor.h"

namespace quire::tools::demo {

struct Batch {
  Batch(const Step& step, const PageAllocator& pages);

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }

  std::vector<TokenId> tokens;          // of all sequences
  std::vector<std::int64_t> last_rows;  // [batch]: row of each sequence's last new token
  std::int64_t max_new_tokens = 0;
  bool shares_prefix = false;  // some sequence has pages of the system prompt
  Tensor row_offsets;          // u32 [batch + 1]
  Tensor cache_lengths;        // u32 [batch]
  Tensor page_table;           // u32 [batch, max_pages], padded with the sentinel
  // The same table in two halves: the shared pages alone, and all the others. What belongs to the
  // other half is unassigned, and so not attended to.
  Tensor prefix_table;
  Tensor suffix_table;
};

}  // namespace quire::tools::demo
