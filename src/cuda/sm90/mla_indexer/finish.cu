// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_indexer/params.h"

#include <cstddef>

#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/mla_indexer/find_part.cuh"
#include "cuda/sm90/mla_indexer/pool.cuh"
#include "cuda/sm90/mla_indexer/write_row.cuh"

namespace quire::cuda::sm90::mla_indexer {

// The best of one row out of the splits that several CTAs have of it. Of a row in many splits the
// merge reads what a split has put first (params.h); only a split whose first codes all turn out to be
// among the best may have more of them, and is then read whole. That is exact, and one CTA
// does for any row: clusters that added up their counts took 14 µs where 132 splits had 131 072 codes.
// Codes stay in registers meanwhile; in shared memory, with smaller loops, a merge took 1 – 2 µs longer.

inline constexpr int kMergeThreads = 1024;

struct MergeShared {
  SelectShared<2> select;
  PositionWindow<4096> window;
  SplitTable table;
  int unit_ends[kMaxParts];  // units of a split and those before it, where splits differ (lay_out)
};

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
  static constexpr int kMergeUnit = 64;               // codes that a warp takes at a time
  static constexpr int kUnitCodes = kMergeUnit / 32;  // of a lane
  static constexpr int kHeldUnits = 6;                // of a warp, in registers
  static constexpr int kWarps = kMergeThreads / 32;

  // The row's splits, when all have been written. False: there is nothing to merge.
  __device__ bool find(int index) {
    prefetch();
    cudaGridDependencySynchronize();
    read_splits(team_, params_, row_, shared_.table);
    list_ = find_splits(shared_.table, params_.parts, index);
    return list_.first >= 0 && (shared_.table.scored_rows[list_.slot(0)] >> row_ & 1) != 0;
  }

  // Translates the addresses that will be read while the last splits are being scored.
  __device__ void prefetch() const {
    for (int slot = team_.thread; slot < 2 * params_.parts; slot += kMergeThreads) {
      const std::int64_t at = std::int64_t{slot} * params_.batch.block_tokens + row_;
      prefetch_line(params_.splits.headers + slot);
      prefetch_line(params_.splits.codes + at * IndexConfig::kPoolKeys);
    }
  }

  __device__ RowPart& part(int split) const { return shared_.table.rows[list_.slot(split)]; }

  // The code from which on the best top_k of the splits' heads are; kAnyCode where there are no more.
  // None of them is below `least`.
  __device__ std::uint64_t select(std::uint64_t least) {
    unsigned total = 0;
    unsigned longest = 0;
    RankLimits limits;
    for (int split = team_.lane(); split < list_.count; split += 32) {
      const RowPart& own = part(split);
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
    lay_out(units_of(static_cast<int>(longest)));
    read_codes();
    const auto top_k = static_cast<unsigned>(params_.batch.top_k);
    if (total <= top_k) return kAnyCode;
    return find_bound(team_, Codes{this}, limits, top_k, shared_.select);
  }

  // Where all of a split's head is above the bound, more of it may be. True if there is such a split.
  __device__ bool take_tails(std::uint64_t bound) {
    team_.sync();  // the table is read
    bool is_any = false;
    for (int split = team_.thread; split < list_.count; split += kMergeThreads) {
      RowPart& own = part(split);
      if (own.head == own.count || own.bound <= bound) continue;
      own.head = own.count;
      own.least = kNanRank;
      is_any = true;
    }
    clear_buckets(team_, shared_.select.bins[0]);
    return team_.any(is_any);
  }

  static __device__ int units_of(int codes) { return (codes + kMergeUnit - 1) / kMergeUnit; }

  // Every split has as many units as the longest where registers hold so many: most are of one length.
  // Beside a split that is read whole the others are short, and have what they need.
  __device__ void lay_out(int longest) {
    num_units_ = list_.count * longest;
    parts_ = num_units_ <= kHeldUnits * kWarps ? max(longest, 1) : 0;
    per_part_ = 0xffffffffu / static_cast<unsigned>(max(parts_, 1)) + 1;
    if (parts_ != 0) return;
    if (team_.warp() == 0) count_units();
    team_.sync();
    num_units_ = shared_.unit_ends[list_.count - 1];
  }

  // By one warp.
  __device__ void count_units() {
    int sum = 0;
    for (int first = 0; first < list_.count; first += 32) {
      const int split = first + team_.lane();
      const auto units =
          static_cast<unsigned>(split < list_.count ? units_of(part(split).head) : 0);
      const auto end = static_cast<int>(sum_up_to_lane(units, team_.lane()));
      if (split < list_.count) shared_.unit_ends[split] = sum + end;
      sum += __shfl_sync(kWholeWarp, end, 31);
    }
  }

  struct UnitPlace {
    int split;
    int unit;  // of the split
  };
  __device__ UnitPlace find_place(int index) const {
    if (parts_ == 1) return {index, 0};
    if (parts_ != 0) {
      const int split = static_cast<int>(__umulhi(index, per_part_));  // index / parts_
      return {split, index - split * parts_};
    }
    int split = 0;  // the first that ends behind the unit
    for (int last = list_.count - 1; split < last;) {
      const int middle = (split + last) / 2;
      if (shared_.unit_ends[middle] > index) {
        last = middle;
      } else {
        split = middle + 1;
      }
    }
    return {split, index - (split == 0 ? 0 : shared_.unit_ends[split - 1])};
  }

  // Where a lane's codes of a unit stand, every 32nd, and how many are left from there.
  struct Unit {
    const std::uint64_t* codes;
    int count;

    __device__ std::uint64_t code(int i) const { return 32 * i < count ? codes[32 * i] : 0; }
  };
  __device__ Unit find_unit(int round) const {
    const int index = round * kWarps + team_.warp();
    if (index >= num_units_) return {nullptr, 0};
    const UnitPlace place = find_place(index);
    const int first = place.unit * kMergeUnit + team_.lane();
    const int slot = list_.slot(place.split);
    const std::int64_t at = std::int64_t{slot} * params_.batch.block_tokens + row_;
    return {params_.splits.codes + at * IndexConfig::kPoolKeys + first,
            shared_.table.rows[slot].head - first};
  }

  __device__ void read_codes() {
#pragma unroll
    for (int i = 0; i < kHeldUnits; ++i) {
      const Unit unit = find_unit(i);
#pragma unroll
      for (int j = 0; j < kUnitCodes; ++j) held_[i][j] = unit.code(j);
    }
  }

  // A thread's codes, 0 where there is none; what registers do not hold is read again.
  template <typename Visit> __device__ void for_each(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kHeldUnits; ++i) {
      if (i * kWarps + team_.warp() >= num_units_) return;
#pragma unroll
      for (int j = 0; j < kUnitCodes; ++j) {
        if (held_[i][j] != 0) visit(held_[i][j]);  // most warps find all there or none
      }
    }
#pragma unroll 1
    for (int i = kHeldUnits; i * kWarps + team_.warp() < num_units_; ++i) {
      const Unit unit = find_unit(i);
#pragma unroll 2
      for (int j = 0; j < kUnitCodes; ++j) visit(unit.code(j));
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
    const SplitTable& table = shared_.table;
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
  SplitList list_{};
  int row_ = 0;
  int num_units_ = 0;  // of all splits
  int parts_ = 0;      // units of a split, 0 where splits differ
  unsigned per_part_ =
      0;  // 2^32 / parts_, rounded up: a product instead of a division for every unit
  std::uint64_t held_[kHeldUnits][kUnitCodes];
};

namespace {

// CTAs [0, merges · block_tokens) merge when all splits are there; those behind them write unscored
// rows, for which they wait for nobody.
__global__ void __launch_bounds__(kMergeThreads, 1)
    finish_kernel(const __grid_constant__ IndexParams params, int merges) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<MergeShared*>(memory);
  const auto block = static_cast<int>(blockIdx.x);
  const int rows = merges * params.batch.block_tokens;
  if (block < rows) {
    RowMerge(params, shared)
        .run(block / params.batch.block_tokens, block % params.batch.block_tokens);
  } else {
    constexpr int kWarps = kMergeThreads / 32;
    const auto blocks = static_cast<int>(gridDim.x) - rows;
    const auto warp = static_cast<int>(threadIdx.x) / 32;
    write_unscored_rows(params, warp * blocks + block - rows, blocks * kWarps);
  }
}

}  // namespace

void launch_finish(const IndexParams& params, int merges, cudaStream_t stream) {
  // A warp to a row, few rows to a CTA: all SMs write. Enough to fill the GPU a few times over
  // are enough.
  constexpr int kMostWriters = 264;
  constexpr int kRows = 16;
  const int wanted = (params.batch.tokens + kRows - 1) / kRows;
  const int writers = wanted < kMostWriters ? wanted : kMostWriters;
  launch(finish_kernel,
         {.grid = dim3(static_cast<unsigned>(merges * params.batch.block_tokens + writers)),
          .block = dim3(kMergeThreads),
          .shared_bytes = sizeof(MergeShared),
          .overlaps_previous = true},
         stream, params, merges);
}

}  // namespace quire::cuda::sm90::mla_indexer
