// SPDX-License-Identifier: Apache-2.0
// A loading warp: key tiles of one warpgroup of scorers, with their scales, into every kWarpgroups-th stage
// of a ring. Shared has `ring`, `tiles`, `key_scales` and `marks` (shared.cuh).
#pragma once

#include <climits>

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/mla_indexer/params.h"
#include "cuda/sm90/mla_indexer/products.cuh"
#include "cuda/sm90/mla_indexer/shared.cuh"

namespace quire::cuda::sm90::mla_indexer {

template <IndexConfig kConfig, typename Shared> class TileLoader {
 public:
  // A lane's box of a run: the tiles of 32 boxes, found at once.
  struct Box {
    unsigned key_page;    // num_pages or more: none
    unsigned scale_page;  // the same
    int row;              // of the page
    int tile;
  };

  __device__ TileLoader(const IndexParams& params, Shared& shared, int warpgroup)
      : params_(params), shared_(shared), boxes_(kIndexTileKeys / params.pages.box_rows) {
    at_.stage = warpgroup;
  }

  __device__ int boxes() const { return boxes_; }  // of a tile, at most 4
  __device__ int run_tiles() const { return 32 / boxes_; }
  // The tile of a run that a lane finds a box of.
  __device__ int lane_tile() const { return lane() / boxes_; }

  // Of the lane's tile. Nothing here waits for the page table's answer.
  __device__ Box find_box(int tile, int sequence, int num_keys) const {
    const IndexPages& pages = params_.pages;
    const int key = tile * kIndexTileKeys + lane() % boxes_ * pages.box_rows;
    const PageSlot slot = PageCursor(pages.keys, sequence).find(key, num_keys);
    return {.key_page = slot.page,
            .scale_page = PageCursor(pages.scales, sequence).page_beside(slot),
            .row = slot.row,
            .tile = tile};
  }

  // The lane's box, none where its keys are beyond `num_keys`.
  __device__ Box cut_box(const Box& box, int num_keys) const {
    const int key = box.tile * kIndexTileKeys + lane() % boxes_ * params_.pages.box_rows;
    return key < num_keys ? box : no_box(box.tile);
  }

  // Bit l: lane l's box has a page.
  __device__ unsigned mapped_boxes(const Box& box) const {
    return __ballot_sync(kWholeWarp, box.key_page < num_pages());
  }

  // The tile whose boxes are the lanes' from first_lane on. A page that is not there lies outside the
  // map: the copy writes zeros, and the bytes to wait for are always the same.
  __device__ void load_tile(int first_lane, unsigned mapped, const Box& box) {
    shared_.ring.wait_empty(at_);
    __syncwarp();
    FullBarrier& full = shared_.ring.full[at_.stage];
    const int index = lane() - first_lane;
    if (index == 0) {
      shared_.marks[at_.phase][at_.stage] = TileMark::of(box.tile, groups_of(mapped >> first_lane));
      full.arrive_and_expect_tx(kConfig.tile_bytes() + kIndexTileKeys * sizeof(float));
    }
    __syncwarp();
    if (index >= 0 && index < boxes_) {
      const int box_rows = params_.pages.box_rows;
      load_box({.map = &params_.keys,
                .shared = &shared_.tiles[at_.stage][index * box_rows * kConfig.dims],
                .full = &full},
               0, box.row, static_cast<int>(min(box.key_page, num_pages())));
      load_box({.map = &params_.key_scales,
                .shared = &shared_.key_scales[at_.phase][at_.stage][index * box_scales(box_rows)],
                .full = &full},
               box.row, static_cast<int>(min(box.scale_page, num_scale_pages())));
    }
    __syncwarp();
    advance_by_turn(at_);
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ unsigned num_pages() const { return params_.pages.keys.num_pages(); }
  __device__ unsigned num_scale_pages() const { return params_.pages.scales.num_pages(); }
  __device__ Box no_box(int tile) const {
    return {.key_page = num_pages(), .scale_page = num_scale_pages(), .row = 0, .tile = tile};
  }

  // Bit g: keys 16g … 16g + 15 of a tile have a page. Of its boxes' bits.
  __device__ unsigned groups_of(unsigned boxes) const {
    if (boxes_ == 4) return boxes & 15;
    if (boxes_ == 2) return (boxes & 1) * 3 + (boxes >> 1 & 1) * 12;
    return (boxes & 1) * 15;
  }

  const IndexParams& params_;
  Shared& shared_;
  const int boxes_;
  RingPosition<kConfig.stages> at_;
};

// A warpgroup's scores of one key tile after another, out of every kWarpgroups-th stage of a ring. Shared has
// `ring`, `tiles`, `key_scales`, `marks`, `queries`, `half_queries` and `weights` (shared.cuh).

template <IndexConfig kConfig, typename Shared> class TileScorer {
 public:
  using Sums = HeadSums<kConfig>;

  // A lane's, of key() and token Sums::token().
  struct Score {
    float value;
    TileMark mark;
  };

  // The warpgroup-th of those that score.
  __device__ TileScorer(const IndexParams& params, Shared& shared, int warpgroup)
      : shared_(shared),
        // A box of 16 keys leaves a gap behind its scales.
        scale_place_(key() + (params.pages.box_rows == 16 ? 16 * warp() : 0)) {
    // The compiler would find it anew for every tile.
    asm volatile("" : "+r"(scale_place_));
    at_.stage = warpgroup;
  }

  // A lane's key in a tile.
  __device__ static int key() { return 16 * warp() + Sums::key(); }

  __device__ void load_weights(int queries) {
    const float* weights = Sums::own_weights(shared_.weights[queries]);
#pragma unroll
    for (int i = 0; i < Sums::kOwnWeights; ++i) weights_[i] = weights[i];
  }

  // Begins the products of the warpgroup's next tile, when it is there. What runs beside them is the
  // caller's choice.
  __device__ void start(int queries) {
    shared_.ring.wait_full(at_);
    __syncwarp();  // the barrier's wait alone does not keep the compiler from reading before it
    if constexpr (kConfig.multiplies_halves()) {
      multiply_halves<kConfig>(shared_.tiles[at_.stage], shared_.half_queries[queries], products_);
    } else {
      start_products<kConfig>(shared_.tiles[at_.stage], shared_.queries[queries], products_);
    }
  }

  // What the products of a tile add up to in this thread.
  struct Parts {
    float values[2];
    RingPosition<kConfig.stages> at;  // where the tile was; its scales and its mark still are
  };
  __device__ Parts add_up() {
    wait_for_products(products_);
    if (threadIdx.x % 32 == 0) shared_.ring.empty[at_.stage].arrive();
    Parts parts{.at = at_};
    advance_by_turn(at_);
    Sums::add(products_, weights_, parts.values);
    return parts;
  }

  // Before the warp arrives at the same stage again (shared.cuh).
  __device__ Score join(const Parts& parts) const {
    const auto& [stage, phase] = parts.at;
    const float scale = shared_.key_scales[phase][stage][scale_place_];
    return {.value = Sums::exchange(parts.values) * scale, .mark = shared_.marks[phase][stage]};
  }

  // The tiles from `tile` up to `end` that are the warpgroup's turn, each given to leave(parts): beside
  // the next one's products where those bind.
  template <typename Leave>
  __device__ int score(int queries, int tile, int end, const Leave& leave) {
    if (tile >= end) return tile;
    start(queries);
    for (tile += IndexConfig::kWarpgroups; tile < end; tile += IndexConfig::kWarpgroups) {
      const Parts parts = add_up();
      if constexpr (kConfig.tokens == 1) {  // bound by memory: the next tile may be long in coming
        leave(parts);
        start(queries);
      } else {
        start(queries);
        leave(parts);
      }
    }
    leave(add_up());
    return tile;
  }

 private:
  __device__ static int warp() {
    return static_cast<int>(threadIdx.x / 32 % 4);
  }

  Shared& shared_;
  int scale_place_;  // of this thread's key
  float weights_[Sums::kOwnWeights];
  float products_[kConfig.columns() / 2];
  RingPosition<kConfig.stages> at_;
};

// What a CTA loads of a row: key tiles, a warp for each warpgroup of scorers; queries and weights,
// by another.

// The warp that loads queries also converts them, where products are of halves, and tells the scorers by
// itself: these meet at no barrier of their own. Shared has `queries`, `half_queries` and `queries_landed`
// (shared.cuh).

// Sends for the queries of a block of tokens. By one thread of the warp whose 32 threads are to arrive at
// `full` (arrive_with_queries).
template <IndexConfig kConfig, typename Shared>
__device__ inline void send_for_queries(const IndexParams& params, int first_token, int place,
                                        FullBarrier& full, Shared& shared) {
  FullBarrier* landed = &full;
  if constexpr (kConfig.multiplies_halves()) {
    landed = &shared.queries_landed[place];
    landed->arrive_and_expect_tx(kConfig.query_bytes());
  } else {
    full.expect_transaction(kConfig.query_bytes());
  }
  load_box({.map = &params.q, .shared = shared.queries[place], .full = landed}, 0, 0, first_token,
           0);
}

// By the whole warp, when it has written all else that `full` promises.
template <IndexConfig kConfig, int kPlaces, typename Shared>
__device__ inline void arrive_with_queries(const RingPosition<kPlaces>& at, FullBarrier& full,
                                           Shared& shared) {
  if constexpr (kConfig.multiplies_halves()) {
    shared.queries_landed[at.stage].wait(at.phase);
    __syncwarp();  // keeps reads behind the wait
    convert_queries<kConfig>(shared.queries[at.stage], shared.half_queries[at.stage]);
    cutlass::arch::fence_view_async_shared();
  }
  full.arrive();
}

// Behind the scorers.
inline constexpr int kFirstLoader = IndexConfig::kScorers / 32;
__device__ inline bool is_loader() {
  const int warp = warp_in_block();
  return warp >= kFirstLoader && warp < kFirstLoader + IndexConfig::kWarpgroups;
}

template <IndexConfig kConfig, typename Shared> class RowLoad {
 public:
  __device__ RowLoad(const IndexParams& params, Shared& shared, int warpgroup)
      : params_(params), loader_(params, shared, warpgroup), warpgroup_(warpgroup) {}

  // Asks for the first pages before the row is known: they are right where sequences have one new token
  // each. `share` has what does not depend on lengths.
  __device__ void guess(const RowShare& share, int token) {
    guessed_ = min(token, params_.batch.size - 1);
    box_ = find_box(share, warpgroup_, guessed_, INT_MAX);
  }

  // The share turned out to be another one.
  __device__ void forget_guess() { guessed_ = -1; }

  __device__ void run(const RowShare& share) {
    const int run = loader_.run_tiles() * kStep;
    const int end = share.own_tiles();
    const auto find = [&](int first) {
      return find_box(share, first, share.row.sequence, share.row.bound);
    };
    box_ =
        share.row.sequence == guessed_ ? loader_.cut_box(box_, share.row.bound) : find(warpgroup_);
    for (int index = warpgroup_; index < end;) {
      const Box next = find(index + run);  // arrives while this run waits
      const unsigned mapped = loader_.mapped_boxes(box_);
      const int last = min(index + run, end);
      for (int first = 0; index < last; index += kStep, first += loader_.boxes()) {
        loader_.load_tile(first, mapped, box_);
      }
      box_ = next;
    }
  }

 private:
  using Loader = TileLoader<kConfig, Shared>;
  using Box = typename Loader::Box;
  static constexpr int kStep = IndexConfig::kWarpgroups;

  // Of the run that begins with the first-th tile of the CTA.
  __device__ Box find_box(const RowShare& share, int first, int sequence, int num_keys) const {
    return loader_.find_box(share.tile(first + loader_.lane_tile() * kStep), sequence, num_keys);
  }

  const IndexParams& params_;
  Loader loader_;
  const int warpgroup_;
  int guessed_ = -1;  // sequence
  Box box_{};         // of the first run
};

template <IndexConfig kConfig, typename Shared>
__device__ inline void load_row_queries(const IndexParams& params, int token, Shared& shared) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  if (lane == 0) {
    send_for_queries<kConfig>(params, token, 0, shared.queries_full, shared);
  }
  const IndexWeights& weights = params.weights;
  const float* own = weights.data + token * weights.token_stride;
  for (int head = lane; head < kConfig.heads; head += 32) {
    shared.weights[0][HeadSums<kConfig>::weight_place(0, head)] =
        0.5f * own[head * weights.head_stride];
  }
  arrive_with_queries<kConfig>(RingPosition<1>{}, shared.queries_full, shared);
}

}  // namespace quire::cuda::sm90::mla_indexer
