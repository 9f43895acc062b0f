// SPDX-License-Identifier: Apache-2.0
// What a tiled attention kernel asks of its K or V, whatever the memory behind it: a paged cache
// layer, a ragged batch, a dense tensor. Three narrow concepts; a kernel names the ones it needs:
//
//   template <KvOperand Keys> requires KvScales<Keys> void score(const Keys& keys, …);
//
//   KvAccess       addresses, rows of a tile, lengths          every operand
//   KvScales       scales; 1 where there are none              all but PagedScalesOperand
//   KvDescriptors  the row matrix that tile descriptors need   all but PagedScalesOperand
//
// Sequences, tokens and heads are u32, rows are u32 below 2^30 (checked once, in the operand's
// constructor), byte offsets are 64-bit. Operands are trivially copyable views.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "quire/dtype.h"
#include "quire/host_device.h"
#include "quire/paged_row_indices.h"
#include "quire/row_matrix.h"
#include "quire/scale_vector.h"

namespace quire {

// The compile-time side of an operand. A structural type: it is a template argument.
struct KvOperandConfig {
  DType dtype = DType::bf16;
  int page_size = 0;  // tokens per page; 0: one run of rows per sequence
  // Columns of `dtype` in a row. A mixed row counts as if it were all `dtype`: 640 for 512 fp8 and
  // 64 bf16; the rope tail is then columns_as() of its matrix.
  int head_dim = 128;
  DType scale_dtype = DType::f32;
  int granularity = 0;  // columns that share a scale; 0: no scales

  constexpr bool quantization_enabled() const { return granularity > 0; }
  bool operator==(const KvOperandConfig&) const = default;
};

// What cache_length() counts. Only a cache's length leaves out the tokens of the call itself.
enum class LengthMeaning : std::uint8_t { cached_before_call, total_keys };

// The tile size with which the concept tries populate().
template <typename T>
inline constexpr int kProbeTile = T::kConfig.page_size > 0 ? T::kConfig.page_size : 64;

template <typename T>
concept KvAccess = std::is_trivially_copyable_v<T> &&
    requires(const T operand, std::uint32_t sequence, std::uint32_t token, std::uint32_t head,
             std::int32_t column, std::int32_t encoded_index) {
  { T::kConfig } -> std::convertible_to<KvOperandConfig>;
  { T::kLengthMeaning } -> std::convertible_to<LengthMeaning>;
  // Address of a column, good for kTile rows at row_stride_bytes(); null if the token has no page.
  {
    operand.template block_paged_ptr<1>(sequence, token, head, column)
    } -> std::same_as<const std::byte*>;
  { operand.row_stride_bytes() } -> std::same_as<std::int64_t>;
  // Row of a token; kUnassignedRow where it has no page.
  { operand.row_idx(sequence, token) } -> std::same_as<std::uint32_t>;
  // Extent of the row axis of every descriptor on this operand.
  { operand.num_kv_rows() } -> std::same_as<std::int64_t>;
  { operand.cache_length(sequence) } -> std::same_as<std::uint32_t>;
  // Upper bound of all lengths, for grids and workspace; never for one sequence's work.
  { operand.max_context_length() } -> std::same_as<std::int64_t>;
  // Rows of the tile that starts at a token which is a multiple of the second argument.
  {
    operand.template populate<kProbeTile<T>, kProbeTile<T>, CtaPair::single>(sequence, token)
    } -> std::same_as<PagedRowIndices<kProbeTile<T>, T::kConfig.page_size, CtaPair::single>>;
  // Row of an encoded sparse index; -1 for every index that names no key.
  { operand.get_tma_row(encoded_index) } -> std::same_as<std::int32_t>;
};

template <typename T>
concept KvScales = requires(const T operand, std::uint32_t sequence, std::uint32_t token,
                            std::uint32_t head, std::int32_t column) {
  { T::kConfig } -> std::convertible_to<KvOperandConfig>;
  // kWidth consecutive scales from the column's slot on: column / granularity, rounded down.
  { operand.template load_scale<1>(sequence, token, head, column) } -> std::same_as<ScaleVector<1>>;
  // Address of the column's scale; null without scales or where the token has no page.
  {
    operand.scales_block_paged_ptr(sequence, token, head, column)
    } -> std::same_as<const std::byte*>;
  // Start of this layer's scales; null without scales.
  { operand.scales_raw_ptr() } -> std::same_as<const std::byte*>;
};

template <typename T>
concept KvDescriptors = requires(const T operand) {
  { operand.row_matrix() } -> std::same_as<RowMatrix>;
};

// Scales that can be fetched by consecutive rows: not those of a paged cache.
template <typename T>
concept KvScaleDescriptors = requires(const T operand) {
  { operand.scale_matrix() } -> std::same_as<ScaleMatrix>;
};

template <typename T>
concept KvOperand = KvAccess<T>;

// Keys that a call sees in a sequence to which it adds new_tokens; right for every operand.
template <KvOperand Operand>
QUIRE_HOST_DEVICE constexpr std::int64_t num_keys(const Operand& operand, std::uint32_t sequence,
                                                  std::uint32_t new_tokens) {
  const std::int64_t length = operand.cache_length(sequence);
  return Operand::kLengthMeaning == LengthMeaning::cached_before_call ? length + new_tokens
                                                                      : length;
}

}  // namespace quire
