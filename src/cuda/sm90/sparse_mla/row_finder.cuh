// SPDX-License-Identifier: Apache-2.0
// From slots to rows: index → page → address, each load a turn ahead of its use, so that a warp that
// gathers never waits for one. A warp finds its own rows, lane by lane: nobody else has to know them.
#pragma once

#include "cuda/sm90/sparse_mla/params.h"

namespace quire::cuda::sm90::sparse_mla {

// The sequence of a token, -1: nobody's. By all lanes of a warp together, each looking at one border in
// 32: a search that halves is seven loads one after the other for 128 sequences, this one two.
__device__ inline int find_sequence(const std::uint32_t* row_offsets, int batch, int token) {
  const auto row = static_cast<std::uint32_t>(token);
  const std::uint32_t end = row_offsets[batch];
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // One token to a sequence, as decoding has it: one load instead of two in a row.
  if (token < batch && row_offsets[token] == row && row_offsets[token + 1] > row) return token;
  int low = 0;  // begins at or before the token
  for (int span = batch; span > 1;) {
    const int step = (span + 31) / 32;
    const int at = low + lane * step;
    const bool begins = at < low + span && at < batch && row_offsets[at] <= row;
    const std::uint32_t votes = __ballot_sync(0xffffffff, begins);
    low += (31 - __clz(static_cast<int>(votes | 1))) * step;
    span = step;
  }
  return row < end ? low : -1;
}

// What a token's slots in a stream may name.
struct SlotLimits {
  int slots = 0;           // to look at
  std::uint32_t keys = 0;  // positions from here on are absent

  __device__ void place(const GatherStream& stream, int token, int sequence, std::uint32_t added) {
    slots = stream.slots;
    if (slots == 0) return;
    if (stream.lengths != nullptr) slots = max(0, min(slots, stream.lengths[token]));
    // An index is below 2^31.
    const std::uint64_t all = std::uint64_t{stream.rows.cache_lengths[sequence]} + added;
    keys = static_cast<std::uint32_t>(min(all, std::uint64_t{1} << 31));
  }
};

// Tiles of one stream, one after another.
struct TileRun {
  const GatherStream& stream;
  SlotLimits limits;
  int token;
  int sequence;
  int first_tile;
  int num_tiles;
  bool is_backwards = false;  // from the last tile to the first, where the kind of rows can
};

// Where pages of rows stand, or pages of scales. In registers: a load from the parameters by a lane's
// own index takes as long as the rest of a step.
struct PagePlaces {
  static constexpr std::uint32_t kNoPage = 0xffffffff;

  const std::byte* data;
  std::int64_t page_bytes;
  std::int64_t token_bytes;
  const std::uint32_t* table;  // of the sequence
  std::uint32_t num_pages;

  static __device__ PagePlaces of_rows(const KvLayerView& view, int sequence) {
    return {.data = view.data,
            .page_bytes = view.page_stride_bytes,
            .token_bytes = view.token_stride_bytes,
            .table = view.page_table + sequence * view.page_table_stride,
            .num_pages = static_cast<std::uint32_t>(view.num_pages)};
  }
  static __device__ PagePlaces of_scales(const ScaleLayerView& view, int sequence) {
    constexpr int kBytes = sizeof(float);
    return {.data = view.data,
            .page_bytes = view.page_stride * kBytes,
            .token_bytes = view.token_stride * kBytes,
            .table = view.page_table + sequence * view.page_table_stride,
            .num_pages = static_cast<std::uint32_t>(view.num_pages)};
  }
  // Null where the page is nobody's.
  __device__ const std::byte* row(std::uint32_t page, std::uint32_t row_in_page) const {
    return page < num_pages ? data + page * page_bytes + row_in_page * token_bytes : nullptr;
  }
};

class RowFinder {
 public:
  // `row`: which of a tile's keys the calling lane looks for.
  __device__ void begin(const TileRun& run, const PagePlaces& places, int keys, int row) {
    const GatherStream& stream = run.stream;
    places_ = places;
    num_keys_ = run.limits.keys;
    page_size_ = static_cast<std::uint32_t>(stream.rows.page_size);
    per_page_ = stream.per_page;
    max_pages_ = static_cast<std::uint32_t>(stream.rows.max_pages);
    indices_ = stream.indices + run.token * stream.indices_stride;
    slot_ = run.first_tile * keys + row;
    slots_ = min(run.limits.slots, (run.first_tile + run.num_tiles) * keys);
    page_ = PagePlaces::kNoPage;
    position_ = kNoPosition;
  }

  // Of what is to be found next.
  __device__ void skip(int slots) { slot_ += slots; }

  // The row of a tile, or null: two calls before the first tile, then one for each. The next tile is
  // `stride` slots further. Whatever is loaded here is looked at in the next call.
  __device__ const std::byte* step(int stride) {
    return step(stride, [](std::uint32_t, std::uint32_t, bool) {});
  }
  // `also` is told the row that is returned, in its page, and the next row's column of the page table.
  template <typename Also> __device__ const std::byte* step(int stride, const Also& also) {
    const std::byte* address = places_.row(page_, row_in_page_);
    const std::uint32_t column = per_page_.divide(position_);
    const bool is_there = position_ < num_keys_ && column < max_pages_;
    also(row_in_page_, column, is_there);
    row_in_page_ = position_ - column * page_size_;
    page_ = is_there ? __ldg(places_.table + column) : PagePlaces::kNoPage;
    // Before the first slot there is none either.
    const bool is_slot = static_cast<std::uint32_t>(slot_) < static_cast<std::uint32_t>(slots_);
    position_ = is_slot ? static_cast<std::uint32_t>(__ldg(indices_ + slot_)) : kNoPosition;
    slot_ += stride;
    return address;
  }

 private:
  static constexpr std::uint32_t kNoPosition = 0xffffffff;

  PagePlaces places_;
  std::uint32_t num_keys_;
  std::uint32_t page_size_;
  PageDivisor per_page_;
  std::uint32_t max_pages_;
  const std::int32_t* indices_;
  int slot_;
  int slots_;
  std::uint32_t page_ = PagePlaces::kNoPage;
  std::uint32_t row_in_page_ = 0;
  std::uint32_t position_ = kNoPosition;
};

// Scales in a tensor of their own, found beside the rows.
class ScaleFinder {
 public:
  __device__ explicit ScaleFinder(const PagePlaces& places) : places_(places) {}

  __device__ const std::byte* found() const { return found_; }
  __device__ void step(std::uint32_t row_in_page, std::uint32_t next_column, bool is_there) {
    found_ = places_.row(page_, row_in_page);
    page_ = is_there ? __ldg(places_.table + next_column) : PagePlaces::kNoPage;
  }

 private:
  PagePlaces places_;
  std::uint32_t page_ = PagePlaces::kNoPage;
  const std::byte* found_ = nullptr;
};

}  // namespace quire::cuda::sm90::sparse_mla
