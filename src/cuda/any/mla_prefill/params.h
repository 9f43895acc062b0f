// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/mask/mask_program.h"
#include "cuda/common/paging/row_reader.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/common/softmax/attend_output.h"
#include "cuda/common/softmax/score.h"
#include "quire/ops/mla_prefill.h"

namespace quire::cuda::any::mla_prefill {

// MlaPrefillChunks on the device.
struct ChunkTable {
  std::uint32_t* buffer_row_offsets = nullptr;  // [max_chunks, batch + 1]
  std::int64_t buffer_chunk_stride = 0;
  std::int64_t buffer_sequence_stride = 0;
  std::uint32_t* cache_offsets = nullptr;  // [max_chunks, batch + 1]
  std::int64_t cache_chunk_stride = 0;
  std::int64_t cache_sequence_stride = 0;
  std::int32_t* buffer_lengths = nullptr;  // [max_chunks]
  std::int64_t lengths_stride = 0;
  std::int64_t max_chunks = 0;
  std::int64_t buffer_tokens = 0;
  std::int64_t decode_tokens = 0;
};

ChunkTable chunk_table(const MlaPrefillChunks& chunks);

struct PrefillPlanParams {
  ChunkTable chunks;
  const std::uint32_t* row_offsets = nullptr;
  const std::uint32_t* cache_lengths = nullptr;
  std::int64_t batch = 0;
  std::int64_t page_size = 0;
};

void launch_prefill_plan(const PrefillPlanParams& params, cudaStream_t stream);

// Latents of one chunk's rows, as the up-projection reads them.
struct GatherParams {
  RowReader cache;
  const std::uint32_t* row_offsets = nullptr;
  ChunkTable chunks;
  std::int64_t chunk = 0;
  std::int64_t rows = 0;  // of the buffer
  std::int32_t latent = 0;
  DType rounded = DType::bf16;  // q's dtype
  DType fp8 = DType::f32;       // the weight's, where that is fp8
  float* latents = nullptr;     // [rows, latent]
};

void launch_gather(const GatherParams& params, cudaStream_t stream);

// Sums that wait for the next chunk.
struct AttendState {
  float* sums = nullptr;  // [tokens, heads of the group, width]
  float* rows = nullptr;  // [tokens, heads of the group, column blocks, 2]: maximum, sum
};

// Which chunks there are before and after the one at hand.
enum class ChunkPlace : std::uint8_t { only, first, middle, last };

struct ChunkAttentionParams {
  PlainRows q;  // [tokens, heads of the group, nope + rope]
  std::int64_t tokens = 0;
  std::int32_t heads = 0;       // of the group
  std::int32_t first_head = 0;  // of the group, among all
  const std::uint32_t* row_offsets = nullptr;
  RowReader cache;
  std::int32_t latent = 0;
  std::int32_t nope = 0;
  PlainRows projected;  // [rows, heads of the group, nope + value]
  std::int64_t rows = 0;
  ChunkTable chunks;
  std::int64_t chunk = 0;
  ChunkPlace place = ChunkPlace::only;
  ScoreParams score;
  MaskProgram mask;
  AttendState state;
  AttendOutput output;  // of all heads
};

void launch_chunk_attention(const ChunkAttentionParams& params, cudaStream_t stream);

// What the general kernels keep in scratch, and how much of it.

struct GeneralSizes {
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t latent;
  std::int64_t rope;
  std::int64_t nope;
  std::int64_t value;
  std::int64_t rows;  // of a chunk, as many as the page tables can fill
  std::int64_t max_chunks;
  std::int64_t element_bytes;  // of q's dtype

  std::int64_t projected_width() const { return nope + value; }
  // Heads whose K and V are in scratch together.
  std::int64_t group() const;
};

struct GeneralScratch {
  float* new_rows;       // [tokens, latent + rope]
  float* latents;        // [rows, latent]
  std::byte* projected;  // [rows, group, nope + value], of q's dtype
  AttendState state;
};

GeneralSizes general_sizes(const MlaPrefillArgs& args);
GeneralSizes general_sizes(const MlaPrefillProblem& problem);
GeneralScratch carve(Carver& carver, const GeneralSizes& sizes);

}  // namespace quire::cuda::any::mla_prefill
