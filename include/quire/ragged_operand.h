// SPDX-License-Identifier: Apache-2.0
// K or V of a ragged batch [tokens, heads, head_dim]: sequence s owns rows [row_offsets[s],
// row_offsets[s + 1]), and its length counts all keys. A tile may run past its sequence into the
// next one: the consumer masks, or the loader takes make_ragged_tile().
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/kv_operand.h"
#include "quire/operand_checks.h"
#include "quire/sparse_index.h"
#include "quire/tensor_view.h"

namespace quire {

template <KvOperandConfig kOperandConfig> class RaggedOperand {
  static_assert(kOperandConfig.page_size == 0, "RaggedOperand: has no pages");

 public:
  static constexpr KvOperandConfig kConfig = kOperandConfig;
  static constexpr LengthMeaning kLengthMeaning = LengthMeaning::total_keys;

  // Throw Error unless the tensors are what the config says. Scales are one per row, so the
  // config's granularity is its head_dim: [1, tokens] for all heads, or [heads, tokens].
  RaggedOperand(const TensorView& values,
                const TensorView& row_offsets) requires(!kConfig.quantization_enabled())
      : values_(values), row_offsets_(row_offsets) {
    check_ragged_operand(values, row_offsets, nullptr, kConfig);
  }
  RaggedOperand(const TensorView& values, const TensorView& row_offsets,
                const TensorView& scales) requires(kConfig.quantization_enabled())
      : values_(values), scales_(scales), row_offsets_(row_offsets) {
    check_ragged_operand(values, row_offsets, &scales, kConfig);
  }

  template <int kTile>
  QUIRE_HOST_DEVICE const std::byte* block_paged_ptr(std::uint32_t sequence, std::uint32_t token,
                                                     std::uint32_t head,
                                                     std::int32_t column = 0) const {
    if (token >= cache_length(sequence)) return nullptr;
    const std::int64_t element =
        row_idx(sequence, token) * values_.strides[0] + head * values_.strides[1] + column;
    return static_cast<const std::byte*>(values_.data) + bytes_for(kConfig.dtype, element);
  }
  QUIRE_HOST_DEVICE std::int64_t row_stride_bytes() const {
    return bytes_for(kConfig.dtype, values_.strides[0]);
  }
  QUIRE_HOST_DEVICE std::uint32_t row_idx(std::uint32_t sequence, std::uint32_t token) const {
    return token < cache_length(sequence) ? offset_of(sequence) + token : kUnassignedRow;
  }
  QUIRE_HOST_DEVICE std::int64_t num_kv_rows() const { return values_.shape[0]; }
  QUIRE_HOST_DEVICE std::uint32_t cache_length(std::uint32_t sequence) const {
    return offset_of(sequence + 1) - offset_of(sequence);
  }
  // The offsets may live on a device, so the bound is the batch's total.
  QUIRE_HOST_DEVICE std::int64_t max_context_length() const { return values_.shape[0]; }

  template <int kTileRows, int kBaseAlignment, CtaPair kPair = CtaPair::single>
  QUIRE_HOST_DEVICE PagedRowIndices<kTileRows, 0, kPair> populate(std::uint32_t sequence,
                                                                  std::uint32_t base_row) const {
    expect_tile_alignment(base_row, kBaseAlignment);
    return {{row_idx(sequence, base_row)}};
  }
  // Without pages an encoded index is the row.
  QUIRE_HOST_DEVICE std::int32_t get_tma_row(std::int32_t encoded_index) const {
    return encoded_index < 0 || encoded_index >= num_kv_rows() ? kNoSparseIndex : encoded_index;
  }

  template <int kWidth>
  QUIRE_HOST_DEVICE ScaleVector<kWidth> load_scale(std::uint32_t sequence, std::uint32_t token,
                                                   std::uint32_t head, std::int32_t column) const {
    if constexpr (kConfig.quantization_enabled()) {
      return load_scale_vector<kConfig.scale_dtype, kWidth>(
          scales_block_paged_ptr(sequence, token, head, column), 0,
          1 - column / kConfig.granularity);
    } else {
      return unit_scales<kWidth>();
    }
  }
  QUIRE_HOST_DEVICE const std::byte* scales_block_paged_ptr(std::uint32_t sequence,
                                                            std::uint32_t token, std::uint32_t head,
                                                            std::int32_t /*column*/ = 0) const {
    if constexpr (kConfig.quantization_enabled()) {
      if (token >= cache_length(sequence)) return nullptr;
      const std::int64_t scale_head = scales_.shape[0] == 1 ? 0 : head;
      const std::int64_t element = scale_head * scales_.strides[0] + row_idx(sequence, token);
      return scales_raw_ptr() + bytes_for(kConfig.scale_dtype, element);
    } else {
      return nullptr;
    }
  }
  QUIRE_HOST_DEVICE const std::byte* scales_raw_ptr() const {
    return static_cast<const std::byte*>(scales_.data);
  }

  RowMatrix row_matrix() const {
    return {.dtype = kConfig.dtype,
            .num_rows = num_kv_rows(),
            .num_heads = values_.shape[1],
            .row_width = kConfig.head_dim,
            .row_stride_bytes = row_stride_bytes(),
            .head_stride_bytes = bytes_for(kConfig.dtype, values_.strides[1])};
  }
  ScaleMatrix scale_matrix() const requires(kConfig.quantization_enabled()) {
    return {.dtype = kConfig.scale_dtype,
            .num_heads = scales_.shape[0],
            .num_rows = num_kv_rows(),
            .head_stride_bytes = bytes_for(kConfig.scale_dtype, scales_.strides[0])};
  }

 private:
  QUIRE_HOST_DEVICE std::uint32_t offset_of(std::uint32_t sequence) const {
    return static_cast<const std::uint32_t*>(row_offsets_.data)[sequence];
  }

  TensorView values_;       // [tokens, heads, head_dim]
  TensorView scales_{};     // [1 or heads, tokens]
  TensorView row_offsets_;  // u32 [batch + 1]
};

}  // namespace quire
