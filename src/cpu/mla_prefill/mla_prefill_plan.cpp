// SPDX-License-Identifier: Apache-2.0
#include "cpu/mla_prefill/mla_prefill_plan.h"

#include <algorithm>

#include "cpu/attention/work_list.h"

namespace quire::cpu {
namespace {

std::uint32_t& entry(const TensorView& tensor, std::int64_t chunk, std::int64_t column) {
  return tensor.as<std::uint32_t>()[tensor.offset({chunk, column})];
}

std::int32_t& length_of(const MlaPrefillChunks& chunks, std::int64_t chunk) {
  return chunks.buffer_lengths.as<std::int32_t>()[chunks.buffer_lengths.offset({chunk})];
}

// Rows of a chunk's buffer that stand before the point `place` of the line of all spans.
std::int64_t rows_before(const MlaPrefillChunks& chunks, std::int64_t chunk, std::int64_t place) {
  return std::clamp<std::int64_t>(place - chunk * chunks.buffer_tokens, 0, chunks.buffer_tokens);
}

}  // namespace

void mla_prefill_plan(const MlaPrefillPlanArgs& args) {
  const MlaPrefillChunks& chunks = args.chunks;
  const std::int64_t num_chunks = chunks.buffer_lengths.shape[0];
  const std::int64_t page_size = args.cache.page_size();
  std::int64_t start = 0;
  std::int64_t sequence = 0;
  for (const SequenceSpan& span : sequence_spans(args.row_offsets, args.cache)) {
    const bool is_decoded = span.num_tokens <= chunks.decode_tokens && chunks.decode_tokens > 0;
    const std::int64_t keys =
        is_decoded ? 0 : (span.num_keys() + page_size - 1) / page_size * page_size;
    for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      const std::int64_t placed =
          std::clamp<std::int64_t>(chunk * chunks.buffer_tokens - start, 0, keys);
      entry(chunks.buffer_row_offsets, chunk, sequence) =
          static_cast<std::uint32_t>(rows_before(chunks, chunk, start));
      entry(chunks.cache_offsets, chunk, sequence) = static_cast<std::uint32_t>(placed);
    }
    start += keys;
    ++sequence;
  }
  for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    const std::int64_t rows = rows_before(chunks, chunk, start);
    entry(chunks.buffer_row_offsets, chunk, sequence) = static_cast<std::uint32_t>(rows);
    entry(chunks.cache_offsets, chunk, sequence) = 0;
    const bool is_unused = rows == 0 && sequence > 0;
    length_of(chunks, chunk) = is_unused ? -1 : static_cast<std::int32_t>(rows);
  }
}

}  // namespace quire::cpu
