// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/prefill/dequantized/dequantize_pages.h"
#include "quire/tile_builders.h"

namespace quire::cuda::sm90::flash_attention {
namespace {

// (column, row): a block's box is its 128 rows.
TensorMap block_map(std::byte* rows, std::int64_t blocks, const TensorView& q) {
  const RowMatrix matrix{.dtype = q.dtype,
                         .num_rows = blocks * kDequantizedKeys,
                         .row_width = q.shape[2],
                         .row_stride_bytes = bytes_for(q.dtype, q.shape[2])};
  const TileRequest request{.swizzle = Swizzle::b128,
                            .box_columns = PrefillConfig::kSwizzleColumnWidth,
                            .box_rows = kDequantizedKeys,
                            .heads = HeadAxis::absent,
                            .l2_promotion = L2Promotion::b256};
  return encode_tensor_map(make_tile(matrix, request), rows);
}

}  // namespace

DequantizedKeys dequantized_keys(const FlashAttentionArgs& args, const KvLayerView& keys,
                                 const KvLayerView& values, const FlashAttentionProblem& problem,
                                 const PrefillPlan& plan, const PrefillWorkspace& space) {
  const int blocks = dequantized_blocks(problem, plan);
  const std::int64_t side_blocks = keys.batch * keys.num_heads * blocks;
  const std::int64_t side_bytes =
      side_blocks * kDequantizedKeys * bytes_for(args.q.dtype, args.q.shape[2]);
  return {.kv = PagedOperand::of(keys, values.data),
          .scales = head_scales(keys, values),
          .kv_heads = keys.num_heads,
          .blocks = blocks,
          .rows = space.rows,
          .keys = block_map(space.rows, side_blocks, args.q),
          .values = block_map(space.rows + side_bytes, side_blocks, args.q),
          .states = space.states,
          .side_blocks = static_cast<int>(side_blocks)};
}

}  // namespace quire::cuda::sm90::flash_attention
