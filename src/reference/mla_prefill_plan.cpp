// SPDX-License-Identifier: Apache-2.0
#include "reference/mla_prefill_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "quire/error.h"
#include "reference/ragged.h"

namespace quire::reference {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t load_integer(const TensorView& tensor, std::int64_t chunk, std::int64_t column) {
  return static_cast<std::int64_t>(tensor.load({chunk, column}));
}

// Keys of a sequence in whole pages; none of one that is decoded.
std::int64_t span_of(const TensorView& row_offsets, const PagedKVCache& cache,
                     std::int64_t sequence, std::int64_t decode_tokens) {
  const std::int64_t page_size = cache.page_size();
  if (is_decoded(row_offsets, sequence, decode_tokens)) return 0;
  return ceil_div(num_keys(row_offsets, cache, sequence), page_size) * page_size;
}

std::int64_t line_length(const TensorView& row_offsets, const PagedKVCache& cache,
                         std::int64_t decode_tokens) {
  std::int64_t length = 0;
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    length += span_of(row_offsets, cache, sequence, decode_tokens);
  }
  return length;
}

// Where the point `place` of the line stands in a chunk: all before it, inside, all after it.
std::int64_t place_in_chunk(std::int64_t place, std::int64_t chunk, std::int64_t buffer_tokens) {
  const std::int64_t home = place / buffer_tokens;
  if (chunk < home) return buffer_tokens;
  return chunk == home ? place % buffer_tokens : 0;
}

void plan_sequence(const MlaPrefillChunks& chunks, std::int64_t sequence, std::int64_t start,
                   std::int64_t span) {
  std::int64_t placed = 0;
  for (std::int64_t chunk = 0; chunk < chunks.buffer_lengths.shape[0]; ++chunk) {
    const std::int64_t first = place_in_chunk(start, chunk, chunks.buffer_tokens);
    chunks.buffer_row_offsets.store({chunk, sequence}, static_cast<double>(first));
    chunks.cache_offsets.store({chunk, sequence}, static_cast<double>(placed));
    placed += std::min(span - placed, chunks.buffer_tokens - first);
  }
}

// The end of the line: the last column of the offsets, and how many rows each chunk has.
void plan_end(const MlaPrefillChunks& chunks, std::int64_t batch, std::int64_t end) {
  const std::int64_t last = ceil_div(end, chunks.buffer_tokens) - 1;
  for (std::int64_t chunk = 0; chunk < chunks.buffer_lengths.shape[0]; ++chunk) {
    const std::int64_t before = chunk * chunks.buffer_tokens;
    const std::int64_t rows = chunk > last ? 0 : std::min(end - before, chunks.buffer_tokens);
    chunks.buffer_row_offsets.store({chunk, batch}, static_cast<double>(rows));
    chunks.cache_offsets.store({chunk, batch}, 0.0);
    const std::int64_t unused = batch == 0 ? 0 : -1;
    chunks.buffer_lengths.store({chunk}, static_cast<double>(chunk > last ? unused : rows));
  }
}

// Keys [0, n) that the chunks hold in order; 0 if a later chunk repeats or skips some.
std::int64_t covered_keys(const MlaPrefillChunks& chunks, std::int64_t sequence,
                          std::int64_t num_keys) {
  std::int64_t covered = 0;
  for (std::int64_t chunk = 0; chunk < chunks.buffer_lengths.shape[0]; ++chunk) {
    const KeyRange range = chunk_keys(chunks, chunk, sequence, num_keys);
    if (range.first == range.last) continue;
    if (range.first != covered || range.last < range.first) return 0;
    covered = range.last;
  }
  return covered;
}

}  // namespace

bool is_decoded(const TensorView& row_offsets, std::int64_t sequence, std::int64_t decode_tokens) {
  return decode_tokens > 0 && num_new_tokens(row_offsets, sequence) <= decode_tokens;
}

std::int64_t mla_prefill_num_chunks(const TensorView& row_offsets, const PagedKVCache& cache,
                                    std::int64_t buffer_tokens, std::int64_t decode_tokens) {
  return ceil_div(line_length(row_offsets, cache, decode_tokens), buffer_tokens);
}

void mla_prefill_plan(const MlaPrefillPlanArgs& args) {
  const MlaPrefillChunks& chunks = args.chunks;
  const std::int64_t given = chunks.buffer_lengths.shape[0];
  const std::int64_t needed = reference::mla_prefill_num_chunks(
      args.row_offsets, args.cache, chunks.buffer_tokens, chunks.decode_tokens);
  if (given < needed) {
    throw Error(ErrorCode::invalid_value, "mla_prefill_plan", "chunks",
                fmt::format("at least {} chunks of {} tokens", needed, chunks.buffer_tokens),
                fmt::format("{}", given));
  }
  std::int64_t start = 0;
  for (std::int64_t sequence = 0; sequence < args.cache.batch(); ++sequence) {
    const std::int64_t span = span_of(args.row_offsets, args.cache, sequence, chunks.decode_tokens);
    plan_sequence(chunks, sequence, start, span);
    start += span;
  }
  plan_end(chunks, args.cache.batch(), start);
}

KeyRange chunk_keys(const MlaPrefillChunks& chunks, std::int64_t chunk, std::int64_t sequence,
                    std::int64_t num_keys) {
  if (chunks.buffer_lengths.load({chunk}) <= 0) return {};
  const std::int64_t rows = load_integer(chunks.buffer_row_offsets, chunk, sequence + 1) -
                            load_integer(chunks.buffer_row_offsets, chunk, sequence);
  const std::int64_t first = load_integer(chunks.cache_offsets, chunk, sequence);
  return {.first = std::min(first, num_keys), .last = std::min(first + rows, num_keys)};
}

void require_cover(const MlaPrefillChunks& chunks, const TensorView& row_offsets,
                   const PagedKVCache& cache) {
  for (std::int64_t sequence = 0; sequence < cache.batch(); ++sequence) {
    if (num_new_tokens(row_offsets, sequence) == 0) continue;
    if (is_decoded(row_offsets, sequence, chunks.decode_tokens)) continue;
    const std::int64_t keys = num_keys(row_offsets, cache, sequence);
    const std::int64_t covered = covered_keys(chunks, sequence, keys);
    if (covered == keys) continue;
    throw Error(ErrorCode::invalid_value, "mla_prefill", "chunks",
                fmt::format("a plan that holds the {} keys of sequence {} once", keys, sequence),
                fmt::format("one that holds the first {}", covered));
  }
}

}  // namespace quire::reference
