// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/general_attention/attend_output.h"
#include "cuda/common/paging/row_reader.h"

namespace quire::cuda::any::sparse_mla {

// A cache and the positions to take from it.
struct ChosenStream {
  RowReader rows;
  const std::int32_t* indices = nullptr;  // [tokens, slots]
  std::int64_t indices_stride = 0;
  std::int64_t slots = 0;
  const std::int32_t* lengths = nullptr;  // [tokens], null: all slots
};

struct SparseAttentionParams {
  PlainRows q;  // [tokens, heads, latent + rope]
  std::int64_t tokens = 0;
  std::int32_t heads = 0;
  const std::uint32_t* row_offsets = nullptr;
  ChosenStream streams[2];  // the chosen rows, then the extra ones; no slots: no stream
  float scale = 1.0f;
  AttendOutput output;
};

void launch_sparse_attention(const SparseAttentionParams& params, cudaStream_t stream);

}  // namespace quire::cuda::any::sparse_mla
