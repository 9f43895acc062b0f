// SPDX-License-Identifier: Apache-2.0
#include "ops/mla_prefill/chunk_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/memory_span.h"
#include "quire/ops/mla_decode.h"

namespace quire::ops {
namespace {

template <typename T>
std::int64_t at(const TensorView& view, std::int64_t row, std::int64_t column = 0) {
  return view.as<const T>()[view.rank == 1 ? view.offset({row}) : view.offset({row, column})];
}

// Rows of a used chunk: from 0, sequence after sequence, to its length, which the buffer holds.
void check_buffer_rows(const Arguments& check, const MlaPrefillChunks& chunks, std::int64_t chunk,
                       std::int64_t batch) {
  const std::int64_t length = at<std::int32_t>(chunks.buffer_lengths, chunk);
  if (length > chunks.buffer_tokens) {
    check.fail("chunks.buffer_lengths",
               fmt::format("at most {}, the buffer's tokens", chunks.buffer_tokens),
               fmt::format("{} at [{}]", length, chunk));
  }
  for (std::int64_t b = 0; b <= batch; ++b) {
    const std::int64_t row = at<std::uint32_t>(chunks.buffer_row_offsets, chunk, b);
    const std::int64_t low =
        b == 0 ? 0 : at<std::uint32_t>(chunks.buffer_row_offsets, chunk, b - 1);
    const std::int64_t high = b == 0 ? 0 : length;
    if (row < low || row > high || (b == batch && row != length)) {
      check.fail("chunks.buffer_row_offsets",
                 fmt::format("from 0 to {} without a step back in chunk {}", length, chunk),
                 fmt::format("{} at [{}, {}]", row, chunk, b));
    }
  }
}

// Keys of a sequence that the chunks hold, in order.
void check_sequence(const Arguments& check, const MlaPrefillChunks& chunks, std::int64_t sequence,
                    std::int64_t keys) {
  std::int64_t covered = 0;
  for (std::int64_t chunk = 0; chunk < chunks.buffer_lengths.shape[0]; ++chunk) {
    if (at<std::int32_t>(chunks.buffer_lengths, chunk) <= 0) continue;
    const std::int64_t rows = at<std::uint32_t>(chunks.buffer_row_offsets, chunk, sequence + 1) -
                              at<std::uint32_t>(chunks.buffer_row_offsets, chunk, sequence);
    if (rows == 0) continue;
    const std::int64_t first = at<std::uint32_t>(chunks.cache_offsets, chunk, sequence);
    if (first != covered) {
      check.fail("chunks.cache_offsets",
                 fmt::format("{}, the keys of sequence {} in earlier chunks", covered, sequence),
                 fmt::format("{} at [{}, {}]", first, chunk, sequence));
    }
    covered += rows;
  }
  if (covered < keys) {
    check.fail("chunks", fmt::format("a plan of all {} keys of sequence {}", keys, sequence),
               fmt::format("one of {}", covered));
  }
}

}  // namespace

void check_chunk_shapes(Arguments& check, const MlaPrefillChunks& chunks, std::int64_t batch,
                        ChunkUse use) {
  check.is_at_least("chunks.buffer_tokens", chunks.buffer_tokens, 1);
  if (chunks.buffer_tokens > std::numeric_limits<std::int32_t>::max()) {
    check.fail("chunks.buffer_tokens", "at most 2^31 - 1", std::to_string(chunks.buffer_tokens));
  }
  check.is_at_least("chunks.decode_tokens", chunks.decode_tokens, 0);
  if (chunks.decode_tokens > kMlaDecodeMaxNewTokens) {
    check.fail("chunks.decode_tokens", fmt::format("at most {}", kMlaDecodeMaxNewTokens),
               std::to_string(chunks.decode_tokens));
  }
  const std::int64_t max_chunks = chunks.buffer_lengths.shape[0];
  const auto examine = [&](const char* name, const TensorView& view, DType dtype,
                           std::initializer_list<Extent> shape) {
    const TensorArgument argument = check.tensor(name, view);
    argument.is(dtype, shape);
    if (use == ChunkUse::filled_in) argument.is_written();
  };
  examine("chunks.buffer_lengths", chunks.buffer_lengths, DType::i32, {"max_chunks"});
  examine("chunks.buffer_row_offsets", chunks.buffer_row_offsets, DType::u32,
          {max_chunks, batch + 1});
  examine("chunks.cache_offsets", chunks.cache_offsets, DType::u32, {max_chunks, batch + 1});
}

void check_chunk_cover(const Arguments& check, const MlaPrefillChunks& chunks,
                       const PagedKVCache& cache, const TensorView& row_offsets) {
  if (!is_on_host(chunks.buffer_lengths)) return;
  for (std::int64_t chunk = 0; chunk < chunks.buffer_lengths.shape[0]; ++chunk) {
    if (at<std::int32_t>(chunks.buffer_lengths, chunk) > 0) {
      check_buffer_rows(check, chunks, chunk, cache.batch());
    }
  }
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    if (num_new_tokens(row_offsets, sequence) == 0) continue;
    if (is_decoded(row_offsets, sequence, chunks.decode_tokens)) continue;
    check_sequence(check, chunks, sequence, num_keys(cache, row_offsets, sequence));
  }
}

bool is_decoded(const TensorView& row_offsets, std::int64_t sequence, std::int64_t decode_tokens) {
  return decode_tokens > 0 && num_new_tokens(row_offsets, sequence) <= decode_tokens;
}

std::int64_t count_chunks(const PagedKVCache& cache, const TensorView& row_offsets,
                          std::int64_t buffer_tokens, std::int64_t decode_tokens) {
  std::int64_t length = 0;
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    if (is_decoded(row_offsets, sequence, decode_tokens)) continue;
    const std::int64_t keys = num_keys(cache, row_offsets, sequence);
    length += ceil_div(keys, cache.page_size()) * cache.page_size();
  }
  return ceil_div(length, buffer_tokens);
}

std::int64_t most_chunks(const PagedKVCache& cache, std::int64_t buffer_tokens) {
  const std::int64_t pages = saturating_product(cache.batch(), cache.max_pages());
  return ceil_div(saturating_product(pages, cache.page_size()), buffer_tokens);
}

}  // namespace quire::ops
