// SPDX-License-Identifier: Apache-2.0
// What the kernels of rope receive, and which of them takes a row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/common/rows/rope_angles.h"
#include "quire/host_device.h"
#include "quire/kv_layer_view.h"
#include "quire/ops/rope.h"

namespace quire::cuda::any::rope {

// RMSNorm of a row before it is rotated, over its first columns.
struct RopeNorm {
  const std::byte* gamma;  // [columns], null: no norm
  DType dtype;
  int columns;
  float exact_inverse;  // of columns where it is a power of two, else 0
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
  int key_heads;                // 0: only q
  int key_width;                // columns of a key row
  std::int64_t key_rope_bytes;  // from a key row to its first rotated column
  const std::uint32_t* row_offsets;
  KvLayerView key;
  RopeAngles angles;
  bool interleaved;
  RopeNorm q_norm;
  RopeNorm key_norm;
  double epsilon;
  double weight_offset;

  bool has_norm() const { return q_norm.gamma != nullptr || key_norm.gamma != nullptr; }
  // First rotated column of a row of `width` columns.
  QUIRE_HOST_DEVICE int first_column(int width) const { return interleaved ? width - rope_dim : 0; }
};

// Lanes that share a row and the vectors of eight columns that each of them holds.
struct NormedLayout {
  int lanes;  // a power of two
  int slots;
};

// Of the rows of launch_tokens().
inline constexpr int kNormedRowColumns = 128;

// `sms`: multiprocessors that the work is spread over.
// Rows of aligned vectors without a norm, keys of q's own dtype in one part (chunks.cu).
void launch_plain(const RopeParams& params, int sms, cudaStream_t stream);
// The same with a norm: whole rows (chunks.cu).
void launch_normed(const RopeParams& params, const NormedLayout& layout, int sms,
                   cudaStream_t stream);
// A norm over whole rows of kNormedRowColumns half-split 16-bit numbers, all of them rotated (tokens.cu).
void launch_tokens(const RopeParams& params, int sms, cudaStream_t stream);
// Any other row (general.cu).
void launch_general(const RopeParams& params, cudaStream_t stream);

}  // namespace quire::cuda::any::rope
