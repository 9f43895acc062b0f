// SPDX-License-Identifier: Apache-2.0
// The checks of the operands' constructors: on the host, before any kernel, throwing Error.
#pragma once

#include <cstdint>

#include "quire/export.h"
#include "quire/host_device.h"
#include "quire/kv_layer_view.h"
#include "quire/kv_operand.h"
#include "quire/tensor_view.h"

namespace quire {

// Rows from one page of the view to the next: kv · layers · page_size of a contiguous [page, kv,
// layer, token, …] pool. Throws unless the view is what the config says, pages are whole numbers of
// rows apart, and rows fit 30 bits and encoded sparse indices 31.
QUIRE_API std::uint32_t checked_rows_per_page_stride(const KvLayerView& view,
                                                     const KvOperandConfig& config);

// Throws unless values are [batch, sequence, heads, head_dim] with rows at one stride, as the
// config says, and scales (given iff the config has a granularity) are [batch, sequence, heads,
// ceil(head_dim / granularity)].
QUIRE_API void check_contiguous_operand(const TensorView& values, const TensorView* scales,
                                        const KvOperandConfig& config);

// Throws unless values are [tokens, heads, head_dim], row_offsets u32 [batch + 1], and scales
// (given iff the config has a granularity, which is then head_dim: one scale per row) [1 or heads,
// tokens].
QUIRE_API void check_ragged_operand(const TensorView& values, const TensorView& row_offsets,
                                    const TensorView* scales, const KvOperandConfig& config);

[[noreturn]] QUIRE_API void throw_unaligned_tile(std::int64_t base_row, std::int64_t alignment);

// A tile's base must keep the alignment that its populate() was promised at compile time. Device
// code trusts it.
QUIRE_HOST_DEVICE inline void expect_tile_alignment([[maybe_unused]] std::int64_t base_row,
                                                    [[maybe_unused]] std::int64_t alignment) {
#if !defined(__CUDA_ARCH__)
  if (base_row % alignment != 0) throw_unaligned_tile(base_row, alignment);
#endif
}

}  // namespace quire
