// SPDX-License-Identifier: Apache-2.0
// The best of one row out of the pieces that several thread blocks have of it. The thread blocks of a
// cluster share the pieces, in ascending order of positions, and add up their counts.
// They hold their codes in registers meanwhile; in shared memory and with smaller loops a merge took 2 – 5
// µs longer.
#pragma once

#include <cstddef>

#include "cuda/hopper/mla_indexer/cluster_load.cuh"
#include "cuda/hopper/mla_indexer/piece_list.cuh"
#include "cuda/hopper/mla_indexer/write_row.cuh"

namespace quire::cuda::hopper {

inline constexpr int kMergeThreads = 512;
inline constexpr int kMergeUnit = 256;  // codes that a warp takes at a time

struct MergeShared {
  static constexpr int kUnits = kMaxParts * (IndexConfig::kPoolKeys / kMergeUnit);
  using Window = PositionWindow<2048>;

  SelectShared<3> select;
  Window window;
  PieceTable table;
  std::uint32_t units[kUnits];  // piece · 16 + part of it
  unsigned num_units;
  unsigned total;  // codes of the row
  unsigned least;  // of its ranks
  unsigned greatest;
  unsigned taken;  // of this thread block
};

class RowMerge {
 public:
  __device__ RowMerge(const IndexParams& params, MergeShared& shared, int rank, int cluster)
      : params_(params), shared_(shared), rank_(rank), cluster_(cluster) {}

  // Row `row` of the index-th cut block. All of a cluster take the same way.
  __device__ void run(int index, int row) {
    row_ = row;
    clear_buckets(team_, shared_.select.bins[0]);
    read_pieces(team_, params_, row, shared_.table);
    list_ = find_pieces(shared_.table, params_.parts, index);
    if (list_.first < 0 || (shared_.table.scored_rows[list_.slot(0)] >> row & 1) == 0) return;
    first_ = list_.count * rank_ / cluster_;
    end_ = list_.count * (rank_ + 1) / cluster_;
    list_units();
    read_codes();
    const auto top_k = static_cast<unsigned>(params_.batch.top_k);
    const RankLimits limits{shared_.least, shared_.greatest};
    write(shared_.total > top_k
              ? find_bound(team_, Codes{this}, limits, top_k, shared_.select, ClusterCounts{this})
              : kAnyCode);
  }

 private:
  static constexpr int kUnitCodes = kMergeUnit / 32;  // of a lane
  static constexpr int kHeldUnits = 4;                // of a warp, in registers
  static constexpr int kWarps = kMergeThreads / 32;

  __device__ const RowPart& part(int piece) const { return shared_.table.rows[list_.slot(piece)]; }
  __device__ unsigned first_position(int piece) const {
    return static_cast<unsigned>(shared_.table.tiles[list_.slot(piece)].x * kIndexTileKeys);
  }
  __device__ unsigned end_position(int piece) const {
    return static_cast<unsigned>(shared_.table.tiles[list_.slot(piece)].y * kIndexTileKeys);
  }
  __device__ void sync_all() const {
    if (cluster_ == 1) return team_.sync();
    cute::cluster_arrive();
    cute::cluster_wait();
  }

  // The share's codes by parts of a piece, and what the whole row has.
  __device__ void list_units() {
    if (team_.warp() == 0) {
      unsigned units = 0;
      unsigned total = 0;
      unsigned least = 0xffffffff;
      unsigned greatest = 0;
      for (int base = 0; base < list_.count; base += 32) {
        const int piece = base + team_.lane();
        const RowPart own = piece < list_.count ? part(piece) : RowPart{.least = 0xffffffff};
        total += static_cast<unsigned>(own.count);
        least = min(least, own.least);
        greatest = max(greatest, own.greatest);
        const bool is_shared = piece >= first_ && piece < end_;
        const auto parts =
            is_shared ? static_cast<unsigned>((own.count + kMergeUnit - 1) / kMergeUnit) : 0u;
        const unsigned up_to = sum_up_to_lane(parts, team_.lane());
        for (unsigned i = 0; i < parts; ++i) {
          shared_.units[units + up_to - parts + i] = static_cast<unsigned>(piece) * 16 + i;
        }
        units += __shfl_sync(kWholeWarp, up_to, 31);
      }
      total = __reduce_add_sync(kWholeWarp, total);
      least = __reduce_min_sync(kWholeWarp, least);
      greatest = __reduce_max_sync(kWholeWarp, greatest);
      if (team_.lane() == 0) {
        shared_.num_units = units;
        shared_.total = total;
        shared_.least = least;
        shared_.greatest = greatest;
      }
    }
    team_.sync();
  }

  // Where a lane's codes of a unit stand, every 32nd, and how many are left from there.
  struct Unit {
    const std::uint64_t* codes;
    int count;

    __device__ std::uint64_t code(int i) const { return 32 * i < count ? codes[32 * i] : 0; }
  };
  __device__ Unit find_unit(int index) const {
    if (index >= static_cast<int>(shared_.num_units)) return {nullptr, 0};
    const auto place = static_cast<int>(shared_.units[index]);
    const int first = place % 16 * kMergeUnit + team_.lane();
    const std::int64_t at =
        std::int64_t{list_.slot(place / 16)} * params_.batch.block_tokens + row_;
    return {params_.pieces.codes + at * IndexConfig::kPoolKeys + first,
            part(place / 16).count - first};
  }

  __device__ void read_codes() {
#pragma unroll
    for (int i = 0; i < kHeldUnits; ++i) {
      const Unit unit = find_unit(team_.warp() + i * kWarps);
#pragma unroll
      for (int j = 0; j < kUnitCodes; ++j) held_[i][j] = unit.code(j);
    }
  }

  // A thread's codes, 0 where there is none; what registers do not hold is read again.
  template <typename Visit> __device__ void for_each(const Visit& visit) const {
    const auto num_units = static_cast<int>(shared_.num_units);
#pragma unroll
    for (int i = 0; i < kHeldUnits; ++i) {
      if (team_.warp() + i * kWarps >= num_units) return;
#pragma unroll
      for (int j = 0; j < kUnitCodes; ++j) visit(held_[i][j]);
    }
#pragma unroll 1
    for (int index = team_.warp() + kHeldUnits * kWarps; index < num_units; index += kWarps) {
      const Unit unit = find_unit(index);
#pragma unroll 2
      for (int j = 0; j < kUnitCodes; ++j) visit(unit.code(j));
    }
  }

  // What the cluster has counted.
  struct ClusterCounts {
    const RowMerge* merge;

    template <typename Threads> __device__ void sync(const Threads&) const { merge->sync_all(); }
    __device__ unsigned count(const unsigned& bin) const {
      return merge->cluster_ == 1 ? bin : sum_of_ranks(bin, merge->cluster_);
    }
  };

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
    const int token = shared_.table.first_tokens[list_.slot(0)] + row_;
    RowOutput output{.row = params_.out + token * params_.out_stride};
    if (cluster_ > 1) {
      unsigned own = 0;
      for_each([&](std::uint64_t code) { own += code >= bound ? 1 : 0; });
      const TeamSum sum = sum_before(team_, own, shared_.select.warp_sums);
      if (team_.thread == 0) shared_.taken = sum.total;
      sync_all();
      output.written = sum_of_ranks(shared_.taken, rank_);
      cute::cluster_arrive();
    }
    if (first_ < end_) {
      write_positions(team_, Codes{this}, bound, first_position(first_), end_position(end_ - 1),
                      output, shared_.window, shared_.select.warp_sums);
    }
    if (rank_ == cluster_ - 1) fill_rest(team_, output, params_.batch.top_k);
    if (cluster_ > 1) cute::cluster_wait();  // nobody reads from a thread block that has left
  }

  const IndexParams& params_;
  MergeShared& shared_;
  const Team<kMergeThreads> team_{static_cast<int>(threadIdx.x), 1};
  const int rank_;
  const int cluster_;
  PieceList list_{};
  int row_ = 0;
  int first_ = 0;  // pieces of this thread block's share
  int end_ = 0;
  std::uint64_t held_[kHeldUnits][kUnitCodes];
};

}  // namespace quire::cuda::hopper
