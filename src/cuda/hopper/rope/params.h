// SPDX-License-Identifier: Apache-2.0
// What the kernels of rope receive, and which of them takes a row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "quire/host_device.h"
#include "quire/kv_layer_view.h"
#include "quire/ops/rope.h"

namespace quire::cuda::hopper {

inline constexpr int kMaxRopeSections = 32;

// Rows of freqs_cis, f32, f16 or bf16 [max_pos, rope_dim].
struct RopeAngles {
  const std::byte* freqs;
  DType dtype;
  std::int64_t row_stride;  // elements
  std::int64_t column_stride;
  std::int64_t max_pos;
  const std::uint32_t* position_ids;  // u32 [sections, tokens], or null: the cache positions
  std::int64_t section_stride;
  std::int64_t token_stride;
  int num_sections;
  int section_ends[kMaxRopeSections];  // one past the last pair of each
};

struct RopeParams {
  const std::byte* q;  // [tokens, heads, head_dim]
  std::byte* out;
  DType q_dtype;
  DType out_dtype;
  std::int64_t q_token_bytes;
  std::int64_t q_head_bytes;
  std::int64_t out_token_bytes;
  std::int64_t out_head_bytes;
  std::int64_t tokens;
  int heads;
  int head_dim;
  int rope_dim;
  int key_heads;  // 0: only q
  const std::uint32_t* row_offsets;
  KvLayerView key;
  RopeAngles angles;
  bool interleaved;

  // First rotated column of a row of `width` columns.
  QUIRE_HOST_DEVICE int first_column(int width) const { return interleaved ? width - rope_dim : 0; }
};

// Rows of aligned vectors, keys of q's own dtype in one part.
bool takes_vectors(const RopeParams& params);

void launch_vectors(const RopeParams& params, cudaStream_t stream);
void launch_general(const RopeParams& params, cudaStream_t stream);

}  // namespace quire::cuda::hopper
