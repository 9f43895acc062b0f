// SPDX-License-Identifier: Apache-2.0
// The new tokens' latent rows finished where they stand, for caches of plain bf16 or f16 rows; the
// others go through finish_rows.h.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/mla/finish_rows.h"

namespace quire::cuda {

// What makes a new row of a raw one.
struct LatentRowFinish {
  LatentAngles angles;
  const std::byte* gamma = nullptr;  // [latent]; null: rows come finished
  DType gamma_dtype = DType::f32;
  double epsilon = 0.0;
  std::int32_t latent = 0;  // a multiple of 8, as the row's width
};

struct FinishPlainParams {
  KvLayerView view{};
  const std::byte* kv =
      nullptr;  // raw rows [tokens, width] of the cache's dtype; null: in the cache
  std::int64_t kv_token_bytes = 0;
  const std::uint32_t* row_offsets = nullptr;
  std::int64_t tokens = 0;
  LatentRowFinish how;
};

// Whether a layer's rows are 16-byte vectors of bf16 or f16; whether the new ones are, and become
// such.
bool is_plain_layer(const KvLayerView& view);
bool are_plain_rows(const NewLatentRows& rows);
FinishPlainParams finish_plain_params(const NewLatentRows& rows);

// Plain rows so, the others by finish_rows, through `scratch` f32 [tokens, width]; nothing without
// freqs_cis.
void finish_latent_rows(const NewLatentRows& rows, float* scratch, const Context& context);

void launch_finish_plain(const FinishPlainParams& params, cudaStream_t stream);

}  // namespace quire::cuda
