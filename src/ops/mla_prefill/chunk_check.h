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

// Where they are on the host: the chunks, in order, hold every key of every sequence with new
// tokens that is not decoded exactly once.
void check_chunk_cover(const Arguments& check, const MlaPrefillChunks& chunks,
                       const PagedKVCache& cache, const TensorView& row_offsets);

// Chunks that a batch on the host needs: its keys, rounded up to whole pages, end to end. Of `chunks`
// only the two numbers of tokens count.
std::int64_t count_chunks(const PagedKVCache& cache, const TensorView& row_offsets,
                          const MlaPrefillChunks& chunks);

// Chunks that suffice for any lengths: page tables filled to the last column.
std::int64_t most_chunks(const PagedKVCache& cache, std::int64_t buffer_tokens);

}  // namespace quire::ops
