// SPDX-License-Identifier: Apache-2.0
// From slots to rows: index → page → address, each load a turn ahead of its use, so that a warp that
// gathers never waits for one. A warp finds its own rows, lane by lane: nobody else has to know them.
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/sm90/sparse_mla/params.h"
#include "cuda/sm90/sparse_mla/shared.cuh"

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
    if (stream.tokens_per_row == 1) {
      keys = static_cast<std::uint32_t>(min(all, std::uint64_t{1} << 31));
    } else {
      keys =
          static_cast<std::uint32_t>(min(all, std::uint64_t{0xffffffff})) / stream.tokens_per_row;
    }
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
  const std::byte* data;
  std::int64_t page_bytes;
  std::int64_t token_bytes;
  PageCursor pages;  // of the sequence

  static __device__ PagePlaces of_rows(const GatherStream& stream, int sequence) {
    const KvLayerView& view = stream.rows;
    return {.data = view.data,
            .page_bytes = view.page_stride_bytes,
            .token_bytes = view.token_stride_bytes,
            .pages = PageCursor(stream.pages, sequence)};
  }
  // kBytes: of a scale.
  template <int kBytes = sizeof(float)>
  static __device__ PagePlaces of_scales(const GatherStream& stream, int sequence) {
    const ScaleLayerView& view = stream.rows.scales;
    return {.data = view.data,
            .page_bytes = view.page_stride * kBytes,
            .token_bytes = view.token_stride * kBytes,
            .pages = PageCursor(stream.pages, sequence).beside(stream.scale_pages, sequence)};
  }
  // Null where the page is nobody's. Of a signed row the product is longer, and the compiler branches around it.
  __device__ const std::byte* row(unsigned page, int row_in_page) const {
    const auto row = static_cast<unsigned>(row_in_page);
    return page < pages.num_pages() ? data + page * page_bytes + row * token_bytes : nullptr;
  }
};

class RowFinder {
 public:
  // `row`: which of a tile's keys the calling lane looks for.
  __device__ void begin(const TileRun& run, const PagePlaces& places, int keys, int row) {
    const GatherStream& stream = run.stream;
    places_ = places;
    num_keys_ = static_cast<int>(run.limits.keys);
    indices_ = stream.indices + run.token * stream.indices_stride;
    slot_ = run.first_tile * keys + row;
    slots_ = min(run.limits.slots, (run.first_tile + run.num_tiles) * keys);
    slot_found_ = {.page = kNoPage};
    position_ = kNoPosition;
  }

  // Of what is to be found next.
  __device__ void skip(int slots) { slot_ += slots; }

  // The row of a tile, or null: two calls before the first tile, then one for each. The next tile is
  // `stride` slots further. Whatever is loaded here is looked at in the next call.
  __device__ const std::byte* step(int stride) {
    return step(stride, [](int, const PageSlot&) {});
  }
  // `also` is told the row that is returned, in its page, and the next row's slot.
  template <typename Also> __device__ const std::byte* step(int stride, const Also& also) {
    const std::byte* address = places_.row(slot_found_.page, slot_found_.row);
    const PageSlot next = places_.pages.find<IdLoad::early>(static_cast<int>(position_), num_keys_);
    also(slot_found_.row, next);
    slot_found_ = next;
    // Before the first slot there is none either.
    const bool is_slot = static_cast<std::uint32_t>(slot_) < static_cast<std::uint32_t>(slots_);
    position_ = is_slot ? static_cast<std::uint32_t>(__ldg(indices_ + slot_)) : kNoPosition;
    slot_ += stride;
    return address;
  }

 private:
  static constexpr std::uint32_t kNoPosition = 0xffffffff;
  static constexpr unsigned kNoPage = 0xffffffff;

  PagePlaces places_;
  int num_keys_;  // as an unsigned number: up to 2^31
  const std::int32_t* indices_;
  int slot_;
  int slots_;
  PageSlot slot_found_{.page = kNoPage};
  std::uint32_t position_ = kNoPosition;
};

// Scales in a tensor of their own, found beside the rows.
class ScaleFinder {
 public:
  __device__ explicit ScaleFinder(const PagePlaces& places) : places_(places) {}

  __device__ const std::byte* found() const { return found_; }
  __device__ void step(int row_in_page, const PageSlot& next) {
    found_ = places_.row(page_, row_in_page);
    page_ = places_.pages.page_beside<IdLoad::early>(next);
  }

 private:
  PagePlaces places_;
  unsigned page_ = 0xffffffff;
  const std::byte* found_ = nullptr;
};

// The work tiles of the work, by number.

struct WorkTile {
  int token;
  int first_head;
  int first_tile;
  int num_tiles;  // at most
  int split;      // its number among all splits; kWhole: all of the token's tiles

  __device__ WorkTile(const SparseWork& work, int work_tile) {
    const int number = work_tile - work.whole;
    const bool is_whole = number < 0;
    const int unit = is_whole ? work_tile : work.whole + number / work.splits;
    token = unit / work.head_tiles;
    first_head = unit % work.head_tiles * SparseConfig::kHeads;
    first_tile = is_whole ? 0 : number % work.splits * work.split_tiles;
    num_tiles = is_whole ? work.tiles : work.split_tiles;
    split = is_whole ? kWhole : number;
  }
};

// The work tiles of a block, in their order: every so many-th, or with the other block of a cluster every so
// many-th pair, of which it has one.
template <int kBlocks> struct WorkTileWalk {
  const SparseWork& work;
  int at = static_cast<int>(blockIdx.x) / kBlocks;
  // Every second work tile of a block goes through its slots from the last to the first, unless bits must not depend on
  // which work tiles a block has. Slots mostly name
  // positions in ascending order, and all blocks are about as far: what the last work tiles have read is in L2
  // still where the next ones begin, even if there is no room for all rows. Always upwards it is the row
  // that is wanted last of all that stays.
  bool is_backwards = false;

  __device__ bool is_over() const { return at >= work.work_tiles() / kBlocks; }
  __device__ bool is_first() const { return at == static_cast<int>(blockIdx.x) / kBlocks; }
  __device__ void advance() {
    at += static_cast<int>(gridDim.x) / kBlocks;
    is_backwards = work.alternates && !is_backwards;
  }
  // Pairs of blocks have neighbouring heads of a token and the same split.
  __device__ int work_tile() const {
    if constexpr (kBlocks == 1) return at;
    const int rank = static_cast<int>(blockIdx.x) % kBlocks;
    const int number = at - work.whole / kBlocks;
    if (number < 0) return at * kBlocks + rank;
    return work.whole + (number / work.splits * kBlocks + rank) * work.splits +
           number % work.splits;
  }
};

// What a gathering warpgroup must know of a work tile before it sends for rows: whose token it is, and how
// many tiles of slots name a position.

// By all threads of a warpgroup. kKeys: slots of a tile.
template <int kKeys> class WorkTileScan {
 public:
  __device__ explicit WorkTileScan(const SparseParams& params) : params_(params) {}

  __device__ void place(int token) {
    const auto batch = static_cast<int>(params_.streams[0].rows.batch);
    sequence_ = batch == 0 ? -1 : find_sequence(params_.row_offsets, batch, token);
    if (sequence_ < 0) return;
    const std::uint32_t added = params_.row_offsets[sequence_ + 1] - params_.row_offsets[sequence_];
    main_.place(params_.streams[0], token, sequence_, added);
    extra_.place(params_.streams[1], token, sequence_, added);
  }
  __device__ int sequence() const { return sequence_; }  // -1: nobody's
  __device__ SlotLimits limits(int stream) const { return stream == 0 ? main_ : extra_; }
  __device__ int first_tile(const WorkTile& work_tile, int stream) const {
    return stream == 0 ? work_tile.first_tile
                       : max(work_tile.first_tile - params_.work.first_tiles, 0);
  }

  // Tiles of each stream up to the last slot that names a position: what follows is not gathered.
  // ends: in shared memory, of each stream and warp; who meets at `barrier` has read it.
  __device__ int2 count_tiles(const WorkTile& work_tile, int (&ends)[2][4], int barrier) const {
    const int border = params_.work.first_tiles;
    const int last = work_tile.first_tile + work_tile.num_tiles;
    for (int stream = 0; stream < 2; ++stream) {
      const int first = first_tile(work_tile, stream);
      const int end = stream == 0 ? min(last, border) : last - border;
      const int found =
          __reduce_max_sync(0xffffffff, last_tile(stream, work_tile.token, first, end));
      if (thread() % 32 == 0) ends[stream][thread() / 32] = max(found - first, 0);
    }
    cutlass::arch::NamedBarrier::sync(kThreads, static_cast<std::uint32_t>(barrier));
    const auto most = [](const int(&of)[4]) { return max(max(of[0], of[1]), max(of[2], of[3])); };
    return {most(ends[0]), most(ends[1])};
  }

 private:
  static constexpr int kThreads = 128;
  static constexpr int kScans = 16;  // indices that a thread reads at a time

  __device__ static int thread() { return static_cast<int>(threadIdx.x % kThreads); }

  // One past the last tile of [first, end) in which this thread's slots name a position; 0: none.
  __device__ int last_tile(int stream, int token, int first, int end) const {
    const GatherStream& from = params_.streams[stream];
    const std::int32_t* indices = from.indices + token * from.indices_stride;
    const SlotLimits limits = this->limits(stream);
    const int slots = min(limits.slots, end * kKeys);
    int found = 0;
    for (int slot = first * kKeys + thread(); slot < slots; slot += kScans * kThreads) {
      std::uint32_t positions[kScans];
#pragma unroll
      for (int i = 0; i < kScans; ++i) {
        const int at = slot + i * kThreads;
        positions[i] = at < slots ? static_cast<std::uint32_t>(__ldg(indices + at)) : ~0U;
      }
#pragma unroll
      for (int i = 0; i < kScans; ++i) {
        if (positions[i] < limits.keys) found = (slot + i * kThreads) / kKeys + 1;
      }
    }
    return found;
  }

  const SparseParams& params_;
  int sequence_ = -1;
  SlotLimits main_;
  SlotLimits extra_;
};

}  // namespace quire::cuda::sm90::sparse_mla
