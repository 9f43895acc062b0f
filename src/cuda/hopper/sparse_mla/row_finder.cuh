// SPDX-License-Identifier: Apache-2.0
// From slots to rows: index → page → address, and the row's scales, each load a tile ahead of its use,
// so that the warpgroup that gathers never waits for one. Thread r < 64 finds row r of a tile, thread
// 64 + r its scales.
#pragma once

#include "cuda/hopper/sparse_mla/params.h"
#include "cuda/hopper/sparse_mla/shared.cuh"
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

class RowFinder {
 public:
  __device__ RowFinder(const SparseParams& params, RowTable& table)
      : params_(params),
        table_(table),
        row_(static_cast<int>(threadIdx.x % SparseConfig::kKeys)),
        finds_scales_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup) >=
                      SparseConfig::kKeys) {}

  // Writes the addresses of tile number `index` of the item and the scales of the one before it. Two
  // steps before tile 0 bring its first loads on their way: one call in a loop, since instructions that
  // run once are fetched from device memory.
  __device__ void step(const SlotRange& range, int index) {
    const int tile = range.first_tile + index;
    if (index >= 0) {
      if (finds_scales_) {
        write_scales((index + kTableSlots - 1) % kTableSlots);
        read_scales(tile);
      } else {
        table_.rows[index % kTableSlots][row_] = row_address(tile);
      }
    }
    take_position(range, tile + 1);
    next_position_ = index + 2 < range.num_tiles ? load_index(range, tile + 2) : -1;
  }

  __device__ const GatherStream& stream_of(int tile) const {
    return params_.streams[tile >= params_.work.first_tiles ? 1 : 0];
  }

 private:
  static constexpr std::uint32_t kNoPage = 0xffffffff;

  __device__ bool uses_plane(const KvLayerView& view) const {
    return view.row_format.parts[0].scale_source == ScaleSource::plane;
  }

  // What stands in a row's slot; looked at a step later, when it has come.
  __device__ int load_index(const SlotRange& range, int tile) const {
    const bool is_extra = tile >= params_.work.first_tiles;
    const GatherStream& stream = params_.streams[is_extra ? 1 : 0];
    const int slot =
        (tile - (is_extra ? params_.work.first_tiles : 0)) * SparseConfig::kKeys + row_;
    if (slot >= (is_extra ? range.extra_limit : range.limit)) return -1;
    return __ldg(stream.indices + range.token * stream.indices_stride + slot);
  }

  // Asks for the page of the next position, or for threads that find scales in a tensor of their own,
  // for the page there. It is looked at a step later.
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
    const bool is_plane = finds_scales_ && uses_plane(view);
    const std::uint32_t* table = is_plane ? view.scales.page_table : view.page_table;
    const std::int64_t stride = is_plane ? view.scales.page_table_stride : view.page_table_stride;
    page_ = __ldg(table + range.sequence * stride + column);
  }

  __device__ const std::byte* row_address(int tile) const {
    const KvLayerView& view = stream_of(tile).rows;
    if (page_ >= view.num_pages) return nullptr;
    return view.data + page_ * view.page_stride_bytes + row_in_page_ * view.token_stride_bytes;
  }

  __device__ void write_scales(int slot) const {
    table_.scales[slot][row_] =
        has_one_scale_ ? float4{row_scale_, row_scale_, row_scale_, row_scale_} : scales_;
    table_.rope_scales[slot][row_] = row_scale_;
  }
  // What is loaded here is not looked at before the next step.
  __device__ void read_scales(int tile) {
    const KvLayerView& view = stream_of(tile).rows;
    const RowPart& latent = view.row_format.parts[0];
    const bool is_plane = uses_plane(view);
    has_one_scale_ = true;
    row_scale_ = 0.0F;
    if (page_ >= (is_plane ? view.scales.num_pages : view.num_pages)) return;
    row_scale_ = 1.0F;
    if (is_plane) {
      row_scale_ = __ldg(reinterpret_cast<const float*>(view.scales.data) +
                         page_ * view.scales.page_stride + row_in_page_ * view.scales.token_stride);
    } else if (latent.scale_source == ScaleSource::in_row) {
      has_one_scale_ = false;
      scales_ =
          __ldg(reinterpret_cast<const float4*>(row_address(tile) + latent.scale_offset_bytes));
    }
  }

  const SparseParams& params_;
  RowTable& table_;
  int row_;
  bool finds_scales_;
  std::uint32_t page_ = kNoPage;
  std::uint32_t row_in_page_ = 0;
  int next_position_ = -1;
  bool has_one_scale_ = true;
  float row_scale_ = 0.0F;
  float4 scales_{};
};

}  // namespace quire::cuda::hopper
