// SPDX-License-Identifier: Apache-2.0
// What the kernels of fused_qkv_matmul receive: plain values, made on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/common/matmul/config.h"
#include "cuda/common/pipeline/tile_walk.h"
#include "cuda/common/runtime/tensor_map.h"
#include "quire/kv_layer_view.h"
#include "quire/tensor_view.h"
#include "quire/tile_builders.h"

namespace quire::cuda {

// Where the columns of Y go: [0, q_dim) to q, then kv_dim columns of K, then as many of V.
struct QkvOutputs {
  std::byte* q = nullptr;  // [tokens, q_dim]
  std::int64_t q_stride_bytes = 0;
  DType q_dtype = DType::bf16;
  int q_dim = 0;
  int kv_dim = 0;
  int head_dim = 0;
  int columns = 0;  // q_dim + 2 · kv_dim; MLA: q_dim + kv_dim
  KvLayerView keys{};
  DType kv_dtype = DType::bf16;
  bool heads_are_dense = true;                 // a token's heads follow each other without gaps
  std::int64_t value_offset_bytes = 0;         // from a token's K row to its V row
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  int batch = 0;
  int tokens = 0;
  const std::byte* bias = nullptr;  // [columns], or null
  DType bias_dtype = DType::f32;

  // The column behind those of Q, K or V that `column` belongs to.
  QUIRE_HOST_DEVICE int end_of_segment(int column) const {
    return column < q_dim ? q_dim : column < q_dim + kv_dim ? q_dim + kv_dim : columns;
  }
};

// fp8: strides are 0 where one scale serves all; a row or column scale multiplies the finished sum,
// a block scale the sum over its 128 columns of K.
struct QkvScales {
  const float* x = nullptr;  // (token, block of K)
  std::int64_t x_token_stride = 0;
  std::int64_t x_block_stride = 0;
  const float* weight = nullptr;  // (row, or 128 rows; block of K)
  std::int64_t weight_row_stride = 0;
  std::int64_t weight_block_stride = 0;
  bool x_by_block = false;
  bool weight_by_block = false;
  // Those of four blocks of K in a row, from every fourth on, may be loaded as 16 bytes.
  bool x_side_by_side = false;
  bool weight_side_by_side = false;

  // A block's scale; null where it is that of a row or column.
  QUIRE_HOST_DEVICE const float* of_token(int token, int block) const {
    return x_by_block ? x + token * x_token_stride + block * x_block_stride : nullptr;
  }
  QUIRE_HOST_DEVICE const float* of_column(int column, int block) const {
    return weight_by_block ? weight + column / 128 * weight_row_stride + block * weight_block_stride
                           : nullptr;
  }
};

// Rows of codes with scales: heads of coded_columns codes, then numbers of one type.
struct KvCodes {
  int granule = 0;  // columns that share a scale, 32 · 2^n; q_dim and coded_columns are multiples
  int coded_columns = 0;
  int codes_offset_bytes = 0;  // in a row
  int rest_offset_bytes = 0;
  DType rest_dtype = DType::bf16;
  bool scales_are_in_row = false;
  bool scales_are_static = false;  // read, not written
  // From a token's K row, or its first scale in the plane, to the scale of a granule.
  std::int64_t scale_offset_bytes = 0;
  std::int64_t scale_value_bytes = 0;
  std::int64_t scale_head_bytes = 0;
  std::int64_t scale_granule_bytes = 0;
};

struct TileParams {
  TensorMap x{};       // boxes of box_tokens tokens × 128 bytes of K
  TensorMap weight{};  // quad-ordered boxes (common/mma/row_order.h)
  int k_blocks = 0;    // of 128 bytes
  // A multiple of 8. A tile has as many tokens as its copies bring; rows past them are never stored.
  int box_tokens = 0;
  TileGrid grid{};  // of clusters
  // Few tokens: no weight is read twice. Marked to be evicted first, it does not push out dirty
  // lines, whose writing back would cost 2.5 µs of 20.
  bool weight_is_read_once = false;
  // Of K, whose weights are sent for while the kernel before this one may still run; 0: it has ended.
  int early_blocks = 0;
  QkvScales scales{};
  QkvOutputs outputs{};
  KvCodes codes{};
  TailTiles tail{};  // where the variant has any
  TensorMap tail_weight{};
};

// How a tile kernel is launched, whatever it multiplies.

struct TileLaunch {
  int blocks = 0;  // a multiple of the cluster
  cudaStream_t stream = nullptr;
};

// The border between host code and one compiled kernel: src/cuda/variants.cmake instantiates it.
template <typename Variant> void launch_tile(const TileParams& params, const TileLaunch& where);

// What the tile kernels multiply with the weights: rows [rows, K], 128 bytes of K at a time.

inline constexpr std::int64_t kRowBytesOfK = 128;

// Blocks of K in a row.
inline int blocks_of_k(const TensorView& x) {
  const std::int64_t bytes = bytes_for(x.dtype, x.shape[1]);
  return static_cast<int>((bytes + kRowBytesOfK - 1) / kRowBytesOfK);
}

inline TileDescriptor row_tile(const TensorView& x, int box_rows) {
  static_assert(swizzle_bytes(Swizzle::b128) == kRowBytesOfK);
  return make_tile(row_matrix_of(x), {.swizzle = Swizzle::b128,
                                      .box_rows = box_rows,
                                      .heads = HeadAxis::absent,
                                      .l2_promotion = L2Promotion::b256});
}

// Whether the scales of four blocks of K in a row, [rows, blocks], may be loaded as 16 bytes from every
// fourth block on.
inline bool stand_side_by_side(const float* scales, std::int64_t row_stride,
                               std::int64_t block_stride, std::int64_t blocks) {
  return reinterpret_cast<std::uintptr_t>(scales) % 16 == 0 && row_stride % 4 == 0 &&
         block_stride == 1 && blocks % 4 == 0;
}

}  // namespace quire::cuda
