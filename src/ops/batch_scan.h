// SPDX-License-Identifier: Apache-2.0
// Passes over the tables of a batch that is on the host. They are read at every call on a CPU, so the loops have no
// branches and keep to what plain vectors of any machine can do; whoever finds something looks again for where it is.
#pragma once

#include <cstdint>

namespace quire::ops {

// What a ragged batch adds up to. `offsets` [batch + 1] is from row_offsets, `lengths` [batch] from cache_lengths.
struct BatchScan {
  bool is_monotone = true;  // offsets never step back; the numbers below mean nothing otherwise
  std::int64_t max_new_tokens = 0;
  std::int64_t max_keys = 0;      // longest cache length + new tokens
  std::int64_t total_keys = 0;    // their sum
  std::int64_t end_position = 0;  // largest sum of a sequence with new tokens
};

BatchScan scan_batch(const std::uint32_t* offsets, const std::uint32_t* lengths,
                     std::int64_t batch);

// Whether some id is neither a page, below num_pages, nor "no page": num_pages or 0xFFFFFFFF.
bool has_bad_page_id(const std::uint32_t* ids, std::int64_t count, std::int64_t num_pages);

}  // namespace quire::ops
