// SPDX-License-Identifier: Apache-2.0
// The best of one row out of the pieces that several thread blocks have of it. Of a row in many pieces the
// merge reads what a piece has put first (params.h); only a piece whose first codes all turn out to be
// among the best may have more of them, and is then read whole. That is exact, and one thread block
// does for any row: clusters that added up their counts took 14 µs where 132 pieces had 131 072 codes.
// A merge runs once on an SM, and waited for its instructions longer than for anything else while every
// thread held 32 codes in registers (ncu). So codes are in shared memory and loops are short.
#pragma once

#include <cstddef>
#include <cute/arch/copy_sm80.hpp>

#include "cuda/hopper/mla_indexer/piece_list.cuh"
#include "cuda/hopper/mla_indexer/write_row.cuh"

namespace quire::cuda::hopper {

inline constexpr int kMergeThreads = 512;

struct MergeShared {
  static constexpr int kCodes = 16384;

  alignas(16) std::uint64_t codes[kCodes];
  SelectShared<2> select;
  PositionWindow<4096> window;
  PieceTable table;
};

// 16 bytes, of which those beyond the first `bytes` are zeros.
__device__ inline void copy_or_zero(void* target, const void* source, int bytes) {
  auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("" : "+r"(address));  // as in load_queries.cuh
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(bytes)
               : "memory");
}

class RowMerge {
 public:
  __device__ RowMerge(const IndexParams& params, MergeShared& shared)
      : params_(params), shared_(shared) {}

  // Row `row` of the index-th cut block.
  __device__ void run(int index, int row) {
    row_ = row;
    clear_buckets(team_, shared_.select.bins[0]);
    if (!find(index)) return;
    std::uint64_t bound = kAnyCode;
    do {
      bound = select(bound);
    } while (take_tails(bound));
    write(bound);
  }

 private:
  // The row's pieces, when all have been written. False: there is nothing to merge.
  __device__ bool find(int index) {
    prefetch();
    cudaGridDependencySynchronize();
    read_pieces(team_, params_, row_, shared_.table);
    list_ = find_pieces(shared_.table, params_.parts, index);
    return list_.first >= 0 && (shared_.table.scored_rows[list_.slot(0)] >> row_ & 1) != 0;
  }

  // Translates the addresses that will be read while the last pieces are being scored.
  __device__ void prefetch() const {
    const auto touch = [](const void* address) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
    };
    for (int slot = team_.thread; slot < 2 * params_.parts; slot += kMergeThreads) {
      const std::int64_t at = std::int64_t{slot} * params_.batch.block_tokens + row_;
      touch(params_.pieces.headers + slot);
      touch(params_.pieces.codes + at * IndexConfig::kPoolKeys);
    }
  }

  __device__ RowPart& part(int piece) const { return shared_.table.rows[list_.slot(piece)]; }

  // The code from which on the best top_k of the pieces' heads are; kAnyCode where there are no more.
  // None of them is below `least`.
  __device__ std::uint64_t select(std::uint64_t least) {
    unsigned total = 0;
    unsigned longest = 0;
    RankLimits limits;
    for (int piece = team_.lane(); piece < list_.count; piece += 32) {
      const RowPart& own = part(piece);
      total += static_cast<unsigned>(own.head);
      longest = max(longest, static_cast<unsigned>(own.head));
      limits.least = min(limits.least, own.least);
      limits.greatest = max(limits.greatest, own.greatest);
    }
    total = __reduce_add_sync(kWholeWarp, total);
    longest = __reduce_max_sync(kWholeWarp, longest);
    limits.least = __reduce_min_sync(kWholeWarp, limits.least);
    limits.greatest = __reduce_max_sync(kWholeWarp, limits.greatest);
    if (least != kAnyCode) limits.least = static_cast<std::uint32_t>(least >> 32);
    pairs_ = (longest + 1) / 2;
    read_codes();
    const auto top_k = static_cast<unsigned>(params_.batch.top_k);
    if (total <= top_k) return kAnyCode;
    return find_bound(team_, Codes{this}, limits, top_k, shared_.select);
  }

  // Where all of a piece's head is above the bound, more of it may be. True if there is such a piece.
  __device__ bool take_tails(std::uint64_t bound) {
    team_.sync();  // the table is read
    bool is_any = false;
    for (int piece = team_.thread; piece < list_.count; piece += kMergeThreads) {
      RowPart& own = part(piece);
      if (own.head == own.count || own.bound <= bound) continue;
      own.head = own.count;
      own.least = kNanRank;
      is_any = true;
    }
    clear_buckets(team_, shared_.select.bins[0]);
    return team_.any(is_any);
  }

  // Two neighbouring codes of a piece. Every piece has as many places as the longest: most are of one
  // length.
  struct Pair {
    const std::uint64_t* codes;
    int count;  // 2, 1 or none
  };
  __device__ Pair find_pair(unsigned index) const {
    const unsigned piece = index / pairs_;
    const auto first = static_cast<int>(2 * (index - piece * pairs_));
    const int slot = list_.slot(static_cast<int>(piece));
    const std::int64_t at = std::int64_t{slot} * params_.batch.block_tokens + row_;
    return {params_.pieces.codes + at * IndexConfig::kPoolKeys + first,
            max(0, min(2, shared_.table.rows[slot].head - first))};
  }
  __device__ unsigned num_pairs() const { return static_cast<unsigned>(list_.count) * pairs_; }
  __device__ unsigned num_held() const { return min(num_pairs(), MergeShared::kCodes / 2u); }

  __device__ void read_codes() {
    for (unsigned index = threadIdx.x; index < num_held(); index += kMergeThreads) {
      const Pair pair = find_pair(index);
      copy_or_zero(&shared_.codes[2 * index], pair.codes, 8 * pair.count);
    }
    cute::cp_async_wait<0>();
    team_.sync();
  }

  // A thread's codes, 0 where there is none; what shared memory does not hold is read again.
  template <typename Visit> __device__ void for_each(const Visit& visit) const {
    constexpr int kBatch = 4;
    const auto* held = reinterpret_cast<const ulonglong2*>(shared_.codes);
#pragma unroll 1
    for (unsigned first = threadIdx.x; first < num_held(); first += kBatch * kMergeThreads) {
      ulonglong2 codes[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const unsigned index = first + i * kMergeThreads;
        codes[i] = index < num_held() ? held[index] : ulonglong2{0, 0};
      }
#pragma unroll
      for (const ulonglong2& two : codes) {
        visit(two.x);
        visit(two.y);
      }
    }
#pragma unroll 1
    for (unsigned index = num_held() + threadIdx.x; index < num_pairs(); index += kMergeThreads) {
      const Pair pair = find_pair(index);
      for (int i = 0; i < pair.count; ++i) visit(pair.codes[i]);
    }
  }

  // The thread's, as rank and position.
  struct Codes {
    const RowMerge* merge;

    template <typename Visit> __device__ void operator()(const Visit& visit) const {
      merge->for_each([&](std::uint64_t code) {
        visit(static_cast<std::uint32_t>(code >> 32), position_of(code));
      });
    }
  };

  __device__ void write(std::uint64_t bound) {
    const PieceTable& table = shared_.table;
    const int token = table.first_tokens[list_.slot(0)] + row_;
    RowOutput output{.row = params_.out + token * params_.out_stride};
    const int end_tile = table.tiles[list_.slot(list_.count - 1)].y;
    write_positions(team_, Codes{this}, bound, 0, static_cast<unsigned>(end_tile * kIndexTileKeys),
                    output, shared_.window, shared_.select.warp_sums);
    fill_rest(team_, output, params_.batch.top_k);
  }

  const IndexParams& params_;
  MergeShared& shared_;
  const Team<kMergeThreads> team_{static_cast<int>(threadIdx.x), 1};
  PieceList list_{};
  int row_ = 0;
  unsigned pairs_ = 0;  // places of a piece, of two codes
};

}  // namespace quire::cuda::hopper
