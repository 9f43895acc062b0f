// SPDX-License-Identifier: Apache-2.0
#include "cpu/row_offsets/row_offsets.h"

namespace quire::cpu {

// new tokens before b are row_offsets[b]; only the cached ones have to be summed.
void row_offsets(const RowOffsetsArgs& args) {
  const std::int64_t batch = args.cache_lengths.shape[0];
  const auto* new_tokens = args.row_offsets.as<const std::uint32_t>();
  const auto* cached = args.cache_lengths.as<const std::uint32_t>();
  auto* out = args.out.as<std::uint32_t>();
  std::uint32_t sum = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    out[b] = sum + new_tokens[b];
    sum += cached[b];
  }
  out[batch] = sum + new_tokens[batch];
}

}  // namespace quire::cpu
