// SPDX-License-Identifier: Apache-2.0
// From slots to rows: index → page → address, and the row's scales, each load a tile ahead of its use,
// so that the warpgroup that gathers never waits for one. Thread r < 64 finds row r of a tile, thread
// 64 + r its scales.
#pragma once

#include "cuda/hopper/sparse_mla/params.h"
#include "cuda/hopper/sparse_mla/shared.cuh"
#include "cuda/rows/any_eight.cuh"
#include "cuda/tile/ragged.cuh"

namespace quire::cuda::hopper {

// What an item's slots may name.
struct SlotRange {
  int token = 0;
  int sequence = -1;  // -1: the token is nobody's
  int first_tile = 0;
  int num_tiles = 0;
  int limit = 0;               // slots of the first stream to look at
  int extra_limit = 0;         // of the second
  std::uint32_t num_keys = 0;  // positions from here on are absent
  std::uint32_t extra_keys = 0;

  __device__ void place(const SparseParams& params, int new_token) {
    token = new_token;
    const GatherStream& main = params.streams[0];
    const auto batch = static_cast<int>(main.rows.batch);
    sequence = -1;
    if (batch == 0 || static_cast<std::uint32_t>(token) >= params.row_offsets[batch]) return;
    sequence = sequence_of(params.row_offsets, batch, static_cast<std::uint32_t>(token));
    const std::uint32_t added =
        params.row_offsets[sequence + 1] - params.row_offsets[sequence];
    place_stream(main, added, limit, num_keys);
    place_stream(params.streams[1], added, extra_limit, extra_keys);
  }

 private:
  __device__ void place_stream(const GatherStream& stream, std::uint32_t added, int& slots,
                               std::uint32_t& keys) const {
    slots = stream.slots;
    if (slots == 0) return;
    if (stream.lengths != nullptr) slots = max(0, min(slots, stream.lengths[token]));
    // An index is below 2^31.
    const std::uint64_t all = std::uint64_t{stream.rows.cache_lengths[sequence]} + added;
    keys = static_cast<std::uint32_t>(min(all, std::uint64_t{1} << 31));
  }
};

// Position that row `row` of a tile takes; -1: none.
__device__ inline int slot_position(const SparseParams& params, const SlotRange& range, int tile,
                                    int row) {
  if (tile >= range.first_tile + range.num_tiles) return -1;
  const bool is_extra = tile >= params.work.first_tiles;
  const GatherStream& stream = params.streams[is_extra ? 1 : 0];
  const int slot = (tile - (is_extra ? params.work.first_tiles : 0)) * SparseConfig::kKeys + row;
  if (slot >= (is_extra ? range.extra_limit : range.limit)) return -1;
  const int position = __ldg(stream.indices + range.token * stream.indices_stride + slot);
  const std::uint32_t keys = is_extra ? range.extra_keys : range.num_keys;
  return static_cast<std::uint32_t>(position) < keys ? position : -1;
}

class RowFinder {
 public:
  __device__ RowFinder(const SparseParams& params, RowTable& table)
      : params_(params),
        table_(table),
        row_(static_cast<int>(threadIdx.x % SparseConfig::kKeys)),
        finds_scales_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup) >=
                      SparseConfig::kKeys) {}

  __device__ void begin(const SlotRange& range) {
    const int tile = range.first_tile;
    position_ = slot_position(params_, range, tile, row_);
    page_ = find_page(range, tile, position_);
    next_position_ = slot_position(params_, range, tile + 1, row_);
  }

  // Writes the addresses of tile number `index` of the item and the scales of the one before it.
  __device__ void step(const SlotRange& range, int index) {
    const int tile = range.first_tile + index;
    if (finds_scales_) {
      write_scales((index + kTableSlots - 1) % kTableSlots);
      read_scales(tile);
    } else {
      table_.rows[index % kTableSlots][row_] = row_address(tile);
    }
    position_ = next_position_;
    page_ = find_page(range, tile + 1, position_);
    next_position_ = slot_position(params_, range, tile + 2, row_);
  }

  __device__ const GatherStream& stream_of(int tile) const {
    return params_.streams[tile >= params_.work.first_tiles ? 1 : 0];
  }

 private:
  static constexpr std::uint32_t kNoPage = 0xffffffff;

  __device__ bool uses_plane(const KvLayerView& view) const {
    return view.row_format.parts[0].scale_source == ScaleSource::plane;
  }

  // The page of a row, or for threads that find scales in a tensor of their own, the page there.
  __device__ std::uint32_t find_page(const SlotRange& range, int tile, int position) const {
    if (position < 0) return kNoPage;
    const KvLayerView& view = stream_of(tile).rows;
    const auto column = static_cast<std::uint32_t>(position) /
                        static_cast<std::uint32_t>(view.page_size);
    if (column >= view.max_pages) return kNoPage;
    if (finds_scales_ && uses_plane(view)) {
      const ScaleLayerView& scales = view.scales;
      const std::uint32_t page =
          __ldg(scales.page_table + range.sequence * scales.page_table_stride + column);
      return page < scales.num_pages ? page : kNoPage;
    }
    const std::uint32_t page =
        __ldg(view.page_table + range.sequence * view.page_table_stride + column);
    return page < view.num_pages ? page : kNoPage;
  }

  __device__ std::uint32_t row_in_page(const KvLayerView& view) const {
    return static_cast<std::uint32_t>(position_) % static_cast<std::uint32_t>(view.page_size);
  }
  __device__ const std::byte* row_address(int tile) const {
    const KvLayerView& view = stream_of(tile).rows;
    if (page_ == kNoPage) return nullptr;
    return view.data + page_ * view.page_stride_bytes +
           row_in_page(view) * view.token_stride_bytes;
  }

  __device__ void write_scales(int slot) const {
    table_.scales[slot][row_] = scales_;
    table_.rope_scales[slot][row_] = rope_scale_;
  }
  __device__ void read_scales(int tile) {
    const KvLayerView& view = stream_of(tile).rows;
    const RowPart& latent = view.row_format.parts[0];
    scales_ = {0.0F, 0.0F, 0.0F, 0.0F};
    rope_scale_ = 0.0F;
    if (page_ == kNoPage) return;
    scales_ = {1.0F, 1.0F, 1.0F, 1.0F};
    rope_scale_ = 1.0F;
    if (latent.scale_source == ScaleSource::in_row) {
      scales_ = __ldg(
          reinterpret_cast<const float4*>(row_address(tile) + latent.scale_offset_bytes));
    } else if (latent.scale_source == ScaleSource::plane) {
      const ScaleLayerView& plane = view.scales;
      const float scale = load_one(plane.data, plane.dtype,
                                   page_ * plane.page_stride +
                                       row_in_page(view) * plane.token_stride);
      scales_ = {scale, scale, scale, scale};
      rope_scale_ = scale;
    }
  }

  const SparseParams& params_;
  RowTable& table_;
  int row_;
  bool finds_scales_;
  int position_ = -1;
  std::uint32_t page_ = kNoPage;
  int next_position_ = -1;
  float4 scales_{};
  float rope_scale_ = 0.0F;
};

}  // namespace quire::cuda::hopper
