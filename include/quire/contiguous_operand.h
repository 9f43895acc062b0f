// SPDX-License-Identifier: Apache-2.0
// A dense K or V [batch, sequence, heads, head_dim] as an operand; all sequences have the same
// length, which counts all keys. row = sequence · length + token. A tile may run past its sequence
// into the next one: the consumer masks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/kv_operand.h"
#include "quire/operand_checks.h"
#include "quire/sparse_index.h"
#include "quire/tensor_view.h"

namespace quire {

template <KvOperandConfig kOperandConfig> class ContiguousOperand {
  static_assert(kOperandConfig.page_size == 0, "ContiguousOperand: has no pages");

 public:
  static constexpr KvOperandConfig kConfig = kOperandConfig;
  static constexpr LengthMeaning kLengthMeaning = LengthMeaning::total_keys;

  // Throw Error unless the tensors are what the config says.
  explicit ContiguousOperand(const TensorView& values) requires(!kConfig.quantization_enabled())
      : values_(values) {
    check_contiguous_operand(values, nullptr, kConfig);
  }
  ContiguousOperand(const TensorView& values,
                    const TensorView& scales) requires(kConfig.quantization_enabled())
      : values_(values), scales_(scales) {
    check_contiguous_operand(values, &scales, kConfig);
  }

  template <int kTile>
  QUIRE_HOST_DEVICE const std::byte* block_paged_ptr(std::uint32_t sequence, std::uint32_t token,
                                                     std::uint32_t head,
                                                     std::int32_t column = 0) const {
    if (token >= values_.shape[1]) return nullptr;
    const std::int64_t element = sequence * values_.strides[0] + token * values_.strides[1] +
                                 head * values_.strides[2] + column;
    return static_cast<const std::byte*>(values_.data) + bytes_for(kConfig.dtype, element);
  }
  QUIRE_HOST_DEVICE std::int64_t row_stride_bytes() const {
    return bytes_for(kConfig.dtype, values_.strides[1]);
  }
  QUIRE_HOST_DEVICE std::uint32_t row_idx(std::uint32_t sequence, std::uint32_t token) const {
    const auto length = static_cast<std::uint32_t>(values_.shape[1]);
    return token < length ? sequence * length + token : kUnassignedRow;
  }
  QUIRE_HOST_DEVICE std::int64_t num_kv_rows() const { return values_.shape[0] * values_.shape[1]; }
  QUIRE_HOST_DEVICE std::uint32_t cache_length(std::uint32_t /*sequence*/) const {
    return static_cast<std::uint32_t>(values_.shape[1]);
  }
  QUIRE_HOST_DEVICE std::int64_t max_context_length() const { return values_.shape[1]; }

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
          scales_block_paged_ptr(sequence, token, head, column),
          bytes_for(kConfig.scale_dtype, scales_.strides[3]),
          static_cast<std::int32_t>(scales_.shape[3]) - column / kConfig.granularity);
    } else {
      return unit_scales<kWidth>();
    }
  }
  QUIRE_HOST_DEVICE const std::byte* scales_block_paged_ptr(std::uint32_t sequence,
                                                            std::uint32_t token, std::uint32_t head,
                                                            std::int32_t column = 0) const {
    if constexpr (kConfig.quantization_enabled()) {
      if (token >= scales_.shape[1]) return nullptr;
      const std::int64_t element = sequence * scales_.strides[0] + token * scales_.strides[1] +
                                   head * scales_.strides[2] +
                                   column / kConfig.granularity * scales_.strides[3];
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
            .num_heads = values_.shape[2],
            .row_width = kConfig.head_dim,
            .row_stride_bytes = row_stride_bytes(),
            .head_stride_bytes = bytes_for(kConfig.dtype, values_.strides[2])};
  }
  // All scales as one run, in memory order [batch, sequence, heads, slots].
  ScaleMatrix scale_matrix() const requires(kConfig.quantization_enabled()) {
    const std::int64_t total = scales_.numel();
    return {.dtype = kConfig.scale_dtype,
            .num_heads = 1,
            .num_rows = total,
            .head_stride_bytes = bytes_for(kConfig.scale_dtype, total)};
  }

 private:
  TensorView values_;    // [batch, sequence, heads, head_dim]
  TensorView scales_{};  // [batch, sequence, heads, slots]
};

}  // namespace quire
