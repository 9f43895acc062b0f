// SPDX-License-Identifier: Apache-2.0
// The K or V of one layer of a paged cache as an operand (KVCacheMHAOperand of the original).
//
//   constexpr KvOperandConfig kKeys{.dtype = DType::bf16, .page_size = 64, .head_dim = 128};
//   PagedKvOperand<kKeys> keys(cache.key(layer), cache.max_cache_length);
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "quire/paged_rows.h"

namespace quire {

template <KvOperandConfig kOperandConfig> class PagedKvOperand : public PagedRows<kOperandConfig> {
  using Rows = PagedRows<kOperandConfig>;
  using Rows::view_;

 public:
  static constexpr KvOperandConfig kConfig = kOperandConfig;

  // Throws Error unless the view is what the config says (checked_rows_per_page_stride).
  explicit PagedKvOperand(const KvLayerView& view,
                          std::optional<std::uint32_t> max_context_length = std::nullopt)
      : Rows(view, max_context_length) {}

  template <int kTile>
  QUIRE_HOST_DEVICE const std::byte* block_paged_ptr(std::uint32_t sequence, std::uint32_t token,
                                                     std::uint32_t head,
                                                     std::int32_t column = 0) const {
    static_assert(kConfig.page_size == 0 || kConfig.page_size % kTile == 0,
                  "block_paged_ptr: a tile lies in one page: page_size % tile == 0");
    const std::uint32_t page = this->page_in(this->value_table(sequence), token);
    if (page >= view_.num_pages) return nullptr;
    return view_.data + page * view_.page_stride_bytes +
           this->offset_in_page(token) * view_.token_stride_bytes + head * view_.head_stride_bytes +
           bytes_for(kConfig.dtype, column);
  }
  QUIRE_HOST_DEVICE std::int64_t row_stride_bytes() const { return view_.token_stride_bytes; }

  template <int kWidth>
  QUIRE_HOST_DEVICE ScaleVector<kWidth> load_scale(std::uint32_t sequence, std::uint32_t token,
                                                   std::uint32_t head, std::int32_t column) const {
    if constexpr (kConfig.quantization_enabled()) {
      return load_scale_vector<kConfig.scale_dtype, kWidth>(
          this->scale_address(sequence, token, head, column),
          bytes_for(kConfig.scale_dtype, view_.scales.slot_stride),
          view_.scales.num_slots - column / kConfig.granularity);
    } else {
      return unit_scales<kWidth>();
    }
  }
  QUIRE_HOST_DEVICE const std::byte* scales_block_paged_ptr(std::uint32_t sequence,
                                                            std::uint32_t token, std::uint32_t head,
                                                            std::int32_t column = 0) const {
    if constexpr (kConfig.quantization_enabled()) {
      return this->scale_address(sequence, token, head, column);
    } else {
      return nullptr;
    }
  }
  QUIRE_HOST_DEVICE const std::byte* scales_raw_ptr() const { return view_.scales.data; }

  RowMatrix row_matrix() const {
    return {.dtype = kConfig.dtype,
            .num_rows = this->num_kv_rows(),
            .num_heads = view_.num_heads,
            .row_width = kConfig.head_dim,
            .row_stride_bytes = view_.token_stride_bytes,
            .head_stride_bytes = view_.head_stride_bytes};
  }
};

}  // namespace quire
