// SPDX-License-Identifier: Apache-2.0
// The chunks of mla_prefill: where every key stands in the gathered buffer.
#pragma once

#include <cstdint>

#include "ops/argument.h"
#include "ops/cache_check.h"
#include "quire/ops/mla_prefill.h"

namespace quire::ops {

enum class ChunkUse : std::uint8_t { filled_in, followed };

// Shapes, buffer_tokens from 1 to 2^31 - 1, decode_tokens from 0 to 8.
void check_chunk_shapes(Arguments& check, const MlaPrefillChunks& chunks, std::int64_t batch,
                        ChunkUse use);

// A sequence of few new tokens: it has no rows in the chunks.
bool is_decoded(const TensorView& row_offsets, std::int64_t sequence, std::int64_t decode_tokens);

// Where they are on the host: the chunks, in order, hold every key of every sequence with new
// tokens that is not decoded exactly once.
void check_chunk_cover(const Arguments& check, const MlaPrefillChunks& chunks,
                       const PagedKVCache& cache, const TensorView& row_offsets);

// Chunks that a batch on the host needs: its keys, rounded up to whole pages, end to end.
std::int64_t count_chunks(const PagedKVCache& cache, const TensorView& row_offsets,
                          std::int64_t buffer_tokens, std::int64_t decode_tokens);

// Chunks that suffice for any lengths: page tables filled to the last column.
std::int64_t most_chunks(const PagedKVCache& cache, std::int64_t buffer_tokens);

}  // namespace quire::ops
