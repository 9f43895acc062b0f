// SPDX-License-Identifier: Apache-2.0
// The layout of mla_prefill's gathered buffer. Every sequence's keys, rounded up to whole pages,
// are laid end to end; the line is cut every `buffer_tokens` rows and each piece is a chunk.
#pragma once

#include <cstdint>

#include "quire/ops/mla_prefill.h"
#include "reference/key_rows.h"

namespace quire::reference {

// Few new tokens: the sequence has no rows in the chunks.
bool is_decoded(const TensorView& row_offsets, std::int64_t sequence, std::int64_t decode_tokens);

// Chunks that the batch needs: 0 for a batch without keys.
std::int64_t mla_prefill_num_chunks(const TensorView& row_offsets, const PagedKVCache& cache,
                                    std::int64_t buffer_tokens, std::int64_t decode_tokens = 0);

// Fills args.chunks. Throws Error, before it writes, if they are too few.
// The last column of cache_offsets, which belongs to no sequence, is 0. A batch of 0 has
// buffer_lengths of 0.
void mla_prefill_plan(const MlaPrefillPlanArgs& args);

// Keys of a sequence that stand in a chunk; empty in an unused one.
KeyRange chunk_keys(const MlaPrefillChunks& chunks, std::int64_t chunk, std::int64_t sequence,
                    std::int64_t num_keys);

// Throws Error unless the chunks, in order, hold every key of every sequence with new tokens that
// is not decoded exactly once.
void require_cover(const MlaPrefillChunks& chunks, const TensorView& row_offsets,
                   const PagedKVCache& cache);

}  // namespace quire::reference
