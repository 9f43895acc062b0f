// SPDX-License-Identifier: Apache-2.0
#include "reference/row_offsets.h"

#include "reference/ragged.h"

namespace quire::reference {

void row_offsets(const RowOffsetsArgs& args) {
  const std::int64_t batch = args.cache_lengths.shape[0];
  std::uint32_t sum = 0;
  for (std::int64_t sequence = 0; sequence <= batch; ++sequence) {
    args.out.as<std::uint32_t>()[args.out.offset({sequence})] = sum;
    if (sequence == batch) break;
    const auto* cache_lengths = args.cache_lengths.as<const std::uint32_t>();
    sum += cache_lengths[args.cache_lengths.offset({sequence})] +
           static_cast<std::uint32_t>(num_new_tokens(args.row_offsets, sequence));
  }
}

}  // namespace quire::reference
