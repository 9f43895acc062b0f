// SPDX-License-Identifier: Apache-2.0
// What the kernels of rope receive, and which of them takes a row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

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

  // f32 with one aligned row for all pairs of a token: 16-byte loads.
  QUIRE_HOST_DEVICE bool stand_in_rows() const {
    return dtype == DType::f32 && column_stride == 1 && num_sections == 0 && row_stride % 4 == 0 &&
           reinterpret_cast<std::uintptr_t>(freqs) % 16 == 0;
  }
};

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

  QUIRE_HOST_DEVICE bool has_norm() const {
    return q_norm.gamma != nullptr || key_norm.gamma != nullptr;
  }
  // First rotated column of a row of `width` columns.
  QUIRE_HOST_DEVICE int first_column(int width) const { return interleaved ? width - rope_dim : 0; }
};

// Lanes that share a row and the vectors of eight columns that each of them holds.
struct NormedLayout {
  int lanes;  // a power of two
  int slots;
};

// Rows of aligned vectors, keys of q's own dtype in one part.
bool takes_vectors(const RopeParams& params);
// The same with a norm: whole rows.
std::optional<NormedLayout> normed_layout(const RopeParams& params);

// A norm over whole rows of this many half-split 16-bit numbers, all of them rotated.
inline constexpr int kNormedRowColumns = 128;
bool takes_normed_tokens(const RopeParams& params);

// `sms`: multiprocessors that the work is spread over.
void launch_vectors(const RopeParams& params, int sms, cudaStream_t stream);
void launch_normed(const RopeParams& params, const NormedLayout& layout, int sms,
                   cudaStream_t stream);
void launch_normed_tokens(const RopeParams& params, int sms, cudaStream_t stream);
void launch_general(const RopeParams& params, cudaStream_t stream);

}  // namespace quire::cuda::hopper
