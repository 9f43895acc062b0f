// SPDX-License-Identifier: Apache-2.0
// What the general kernels receive: both operands as they lie in memory, and where the columns of Y
// go.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/projection.h"
#include "cuda/common/matmul/int4/pack_order.h"
#include "quire/kv_layer_view.h"
#include "quire/weight.h"

namespace quire::cuda::any::fused_qkv_matmul {

// Columns that a thread loads and decodes at once. Every group and block of columns that shares a
// scale is a multiple of it.
inline constexpr int kRun = 8;

// x [tokens, hidden], rows dense.
struct InputOperand {
  const std::byte* data = nullptr;
  DType dtype = DType::bf16;
  std::int64_t stride_bytes = 0;
  int rows = 0;
  int columns = 0;
  bool has_vectors = false;             // every run is aligned for one vector
  const float* scale = nullptr;         // fp8
  std::int64_t scale_row_stride = 0;    // 0: one for all tokens
  std::int64_t scale_block_stride = 0;  // of 128 columns; 0: one for all
  const std::int32_t* perm = nullptr;   // [hidden]: column k stands at perm[k]
};

// W [rows, columns] in the stored order of its columns.
struct WeightOperand {
  const std::byte* data = nullptr;
  WeightFormat format = WeightFormat::dense;
  DType dtype = DType::bf16;      // dense, fp8
  std::int64_t stride_bytes = 0;  // of the stored tensor's first axis
  int rows = 0;
  int columns = 0;
  bool has_vectors = false;  // every run is aligned for one vector; GGUF: for 16-bit words
  const std::byte* scale = nullptr;
  DType scale_dtype = DType::f32;
  int rows_per_scale = 1;
  int columns_per_scale = 1;
  std::int64_t scale_row_stride = 0;  // between scales, in elements; 0: one for all rows
  std::int64_t scale_column_stride = 0;
  const std::byte* zeros = nullptr;  // int4: u8; gptq, awq: words of eight rows
  std::int64_t zeros_row_stride = 0;
  std::int64_t zeros_column_stride = 0;
  bool is_packed = false;  // codes, scales and zeros stand in data, in this order
  Int4Order order{};
};

// Columns [0, q_dim) go to q, then kv_dim columns of K, then as many of V (MLA: none).
struct GeneralOutputs {
  std::byte* q = nullptr;  // [tokens, q_dim]
  std::int64_t q_stride_bytes = 0;
  DType q_dtype = DType::bf16;
  int tokens = 0;
  int q_dim = 0;
  int kv_dim = 0;
  int columns = 0;
  KvLayerView keys{};
  DType kv_dtype = DType::bf16;
  std::int64_t value_offset_bytes = 0;         // from a K row to the V row beside it
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  const std::byte* bias = nullptr;             // [columns], or null
  DType bias_dtype = DType::f32;
  // [tokens, columns - q_dim]: K and V in fp32, to be encoded afterwards. Null: they go to the pages.
  float* rows = nullptr;
  bool has_whole_fours = false;  // four columns from a multiple of four on stand side by side
};

struct GeneralParams {
  InputOperand x{};
  WeightOperand weight{};
  GeneralOutputs outputs{};
};

// Tiles of Y by blocks that share decoded operands; one kernel for a family of weight formats.
void launch_tiles_f32(const GeneralParams& params, cudaStream_t stream);      // x and W, no perm
void launch_tiles_numbers(const GeneralParams& params, cudaStream_t stream);  // dense, fp8
void launch_tiles_groups(const GeneralParams& params, cudaStream_t stream);   // int4, gptq, awq
void launch_tiles_blocks(const GeneralParams& params, cudaStream_t stream);   // GGUF
// Few tokens: every weight is decoded once per eight of them, by a warp along its row.
void launch_few(const GeneralParams& params, cudaStream_t stream);
// x rounded to 8-bit integers per token and `group` columns, to out [tokens, columns], in the order
// of the stored weight columns.
void launch_round_input(const InputOperand& x, int group, float* out, cudaStream_t stream);

// K and V, if any, go to the pages.
GeneralParams make_general_params(const Projection& args);

}  // namespace quire::cuda::any::fused_qkv_matmul
