// SPDX-License-Identifier: Apache-2.0
// What the kernels of store and store_scales receive, and which of them takes a row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include "cuda/common/rows/divisor.h"
#include "cuda/common/runtime/device_facts.h"
#include "quire/kv_layer_view.h"
#include "quire/ops/store.h"
#include "quire/slotted_kv_operand.h"

namespace quire::cuda::any::store {

struct StoreParams {
  const std::byte* x;  // [tokens, heads, width], or scales [tokens, heads, slots]
  DType x_dtype;
  std::int64_t token_stride_bytes;
  std::int64_t head_stride_bytes;
  std::int64_t last_stride;  // elements; rows of x are dense, scales need not be
  std::int64_t tokens;
  const std::uint32_t* row_offsets;
  KvLayerView view;
  bool scales_are_static;
};

// K and V in one launch, a side for each blockIdx.z, or one of them; their tokens by slots or as above. Kernels are templates
// over this and StoreParams, so that those of one side by lengths have nothing to choose.
struct StoreSides {
  StoreParams sides[2];
  unsigned num_sides;
  SlotList slots;  // not defined: by offsets, lengths and page table
};

// What the launch of either goes by: sides are alike in tokens, heads and kernel.
inline const StoreParams& first_side(const StoreParams& rows) {
  return rows;
}
inline const StoreParams& first_side(const StoreSides& rows) {
  return rows.sides[0];
}
inline unsigned num_sides(const StoreParams& /*rows*/) {
  return 1;
}
inline unsigned num_sides(const StoreSides& rows) {
  return rows.num_sides;
}

// Rows whose every vector of eight columns lies in one part, aligned, and whose scales serve groups
// of lanes that a few shuffles can reduce.
struct EncodeLayout {
  int lanes;             // that share a row: 8, 16 or 32
  int slots;             // vectors per lane: 1 to 4
  int granule_vectors;   // vectors that share a scale, a power of two ≤ lanes; 0: the whole row
  int granule_shift;     // its logarithm
  bool granule_is_wide;  // a column of more than 8 bits shares the scale: it is never 0
  bool has_scales;
  DType coded;  // the 8-bit type of the scaled columns
  Divisor heads;

  bool operator==(const EncodeLayout&) const = default;
};

// Vectors of eight columns that are treated alike: those of a row stand together.
struct VectorRun {
  Divisor per_row;
  std::int64_t x_offset_bytes;  // from the row's first column
  std::int64_t offset_bytes;    // in the row of the cache
  bool is_used;

  bool operator==(const VectorRun&) const = default;
};

// Scales of coded rows: none, those of their own granules, which are stored too, or ones that the caller set, the same for
// all tokens.
enum class TokenScaling : std::uint8_t { none, granules, fixed };

// Rows of 16-bit numbers that become fp8, by granules of neighbouring lanes; then columns that stay as they are.
struct CodeLayout {
  VectorRun coded;
  VectorRun copied;
  unsigned block_tokens;  // of a block: so many tokens,
  unsigned block_rows;    // so many of their rows
  TokenScaling scaling;
  bool scales_are_in_row;
  int granule_shift;                // logarithm of the vectors of a granule
  std::int64_t scale_offset_bytes;  // from a token's row or its first scale
  std::int64_t scale_head_bytes;
  std::int64_t scale_slot_bytes;
  int staged_row_bytes;  // of rows that sm90/store puts together and TMA stores; 0: not so

  bool operator==(const CodeLayout&) const = default;
};

// What the kernel of sm90/store takes.
inline constexpr int kCodedRowVectors = 64;
inline constexpr int kMostStagedRowBytes = 704;

bool can_copy(const StoreParams& params);
// A token's scales stand end to end on both sides, and every one of them is used.
bool can_copy_scales(const StoreParams& params);
std::optional<EncodeLayout> encode_layout(const StoreParams& params);
// Staged rows: only where the GPU runs the kernel of sm90/store.
std::optional<CodeLayout> code_layout(const StoreParams& params, ComputeCapability found);
// Rows of a token and tokens whose vectors one block of launch_code() can hold; no tokens: a row has too many.
struct BlockSize {
  unsigned rows;
  unsigned tokens;
};
BlockSize block_size(unsigned rows, unsigned coded_vectors, unsigned copied_vectors,
                     TokenScaling scaling);

void launch_copy(const StoreParams& rows, cudaStream_t stream);
void launch_copy(const StoreSides& rows, cudaStream_t stream);
void launch_copy_scales(const StoreParams& params, cudaStream_t stream);
void launch_encode(const StoreParams& rows, const EncodeLayout& layout, cudaStream_t stream);
void launch_encode(const StoreSides& rows, const EncodeLayout& layout, cudaStream_t stream);
void launch_code(const StoreParams& rows, const CodeLayout& layout, int sms, cudaStream_t stream);
void launch_code(const StoreSides& rows, const CodeLayout& layout, int sms, cudaStream_t stream);
void launch_general(const StoreParams& rows, cudaStream_t stream);
void launch_general(const StoreSides& rows, cudaStream_t stream);
void launch_scales(const StoreParams& params, cudaStream_t stream);

}  // namespace quire::cuda::any::store
