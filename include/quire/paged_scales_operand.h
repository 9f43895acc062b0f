// SPDX-License-Identifier: Apache-2.0
// The scales of a paged cache layer read as if they were K: for the sparse indexer, which streams
// one scale per token beside its fp8 keys (KVCacheScalesMHAOperand of the original).
//
// Rows (row_idx, populate, get_tma_row) are those of the values, so that they agree with the key
// operand's; addresses go through the scales' own page table. Scales have no tile descriptors:
// their rows are shorter than a copy may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "quire/paged_rows.h"

namespace quire {

// kKeyConfig is the config of the key operand.
template <KvOperandConfig kKeyConfig> class PagedScalesOperand : public PagedRows<kKeyConfig> {
  static_assert(kKeyConfig.quantization_enabled(), "PagedScalesOperand: the cache has no scales");
  using Rows = PagedRows<kKeyConfig>;
  using Rows::view_;

 public:
  static constexpr KvOperandConfig kConfig{
      .dtype = kKeyConfig.scale_dtype,
      .page_size = kKeyConfig.page_size,
      .head_dim = (kKeyConfig.head_dim + kKeyConfig.granularity - 1) / kKeyConfig.granularity,
  };

  explicit PagedScalesOperand(const KvLayerView& view,
                              std::optional<std::uint32_t> max_context_length = std::nullopt)
      : Rows(view, max_context_length) {}

  // `column` counts the keys' columns: the address is that of slot column / granularity.
  template <int kTile>
  QUIRE_HOST_DEVICE const std::byte* block_paged_ptr(std::uint32_t sequence, std::uint32_t token,
                                                     std::uint32_t head,
                                                     std::int32_t column = 0) const {
    static_assert(kConfig.page_size == 0 || kConfig.page_size % kTile == 0,
                  "block_paged_ptr: a tile lies in one page: page_size % tile == 0");
    return this->scale_address(sequence, token, head, column);
  }
  QUIRE_HOST_DEVICE std::int64_t row_stride_bytes() const {
    return bytes_for(kConfig.dtype, view_.scales.token_stride);
  }
};

}  // namespace quire
