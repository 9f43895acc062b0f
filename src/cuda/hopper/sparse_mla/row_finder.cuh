// SPDX-License-Identifier: Apache-2.0
// From slots to rows: index → page → address, each load a turn ahead of its use, so that a warp that
// gathers never waits for one. A warp finds its own rows, lane by lane: nobody else has to know them.
#pragma once

#include "cuda/hopper/sparse_mla/params.h"
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
    const std::uint32_t added = params.row_offsets[sequence + 1] - params.row_offsets[sequence];
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

// Finds row `row` of a warp's tiles, one tile after another.
class RowFinder {
 public:
  // `row`: which of a tile's keys the calling lane looks for. A lane that `finds_scales` takes pages of
  // the tensor of scales where there is one.
  __device__ RowFinder(const SparseParams& params, int keys, int row, bool finds_scales)
      : params_(params), keys_(keys), row_(row), finds_scales_(finds_scales) {}

  // To be called for tile after tile from two before the first one on; then address() is
  // that of tile number `index` of the item. Whatever is loaded here is looked at in the next call.
  __device__ void step(const SlotRange& range, int index) {
    const int tile = range.first_tile + index;
    page_now_ = page_;
    row_in_page_now_ = row_in_page_;
    take_position(range, tile + 1);
    next_position_ = index + 2 < range.num_tiles ? load_index(range, tile + 2) : -1;
  }

  // The row, or null; `view`: of the tile's stream. Not for lanes that take pages of scales.
  __device__ const std::byte* address(const KvLayerView& view) const {
    if (page_now_ >= view.num_pages) return nullptr;
    return view.data + page_now_ * view.page_stride_bytes +
           row_in_page_now_ * view.token_stride_bytes;
  }
  // Of a lane that finds scales: the row's scale in the tensor of scales, or null.
  __device__ const float* plane_scale(const ScaleLayerView& scales) const {
    if (page_now_ >= scales.num_pages) return nullptr;
    return reinterpret_cast<const float*>(scales.data) + page_now_ * scales.page_stride +
           row_in_page_now_ * scales.token_stride;
  }

  __device__ const GatherStream& stream_of(int tile) const {
    return params_.streams[tile >= params_.work.first_tiles ? 1 : 0];
  }

 private:
  static constexpr std::uint32_t kNoPage = 0xffffffff;

  __device__ bool takes_plane(const KvLayerView& view) const {
    return finds_scales_ && view.row_format.parts[0].scale_source == ScaleSource::plane;
  }

  __device__ int load_index(const SlotRange& range, int tile) const {
    const bool is_extra = tile >= params_.work.first_tiles;
    const GatherStream& stream = params_.streams[is_extra ? 1 : 0];
    const int slot = (tile - (is_extra ? params_.work.first_tiles : 0)) * keys_ + row_;
    if (slot >= (is_extra ? range.extra_limit : range.limit)) return -1;
    return __ldg(stream.indices + range.token * stream.indices_stride + slot);
  }

  // Asks for the page of the next position.
  __device__ void take_position(const SlotRange& range, int tile) {
    const bool is_extra = tile >= params_.work.first_tiles;
    const KvLayerView& view = params_.streams[is_extra ? 1 : 0].rows;
    const auto position = static_cast<std::uint32_t>(next_position_);
    const auto page_size = static_cast<std::uint32_t>(view.page_size);
    const std::uint32_t column = position / page_size;
    row_in_page_ = position - column * page_size;
    page_ = kNoPage;
    if (position >= (is_extra ? range.extra_keys : range.num_keys) || column >= view.max_pages) {
      return;
    }
    const bool is_plane = takes_plane(view);
    const std::uint32_t* table = is_plane ? view.scales.page_table : view.page_table;
    const std::int64_t stride = is_plane ? view.scales.page_table_stride : view.page_table_stride;
    page_ = __ldg(table + range.sequence * stride + column);
  }

  const SparseParams& params_;
  int keys_;
  int row_;
  bool finds_scales_;
  std::uint32_t page_now_ = kNoPage;
  std::uint32_t row_in_page_now_ = 0;
  std::uint32_t page_ = kNoPage;
  std::uint32_t row_in_page_ = 0;
  int next_position_ = -1;
};

}  // namespace quire::cuda::hopper
