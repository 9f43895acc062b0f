// SPDX-License-Identifier: Apache-2.0
// The best of one row out of the pieces that several thread blocks have of it. The thread blocks of a
// cluster share the pieces, in ascending order of positions, and add up their counts of digits.
#pragma once

#include <cstddef>
#include <cute/arch/cluster_sm90.hpp>

#include "cuda/hopper/mla_indexer/piece_list.cuh"
#include "cuda/hopper/mla_indexer/write_row.cuh"

namespace quire::cuda::hopper {

struct MergeConfig {
  int threads = 1024;
  int blocks_per_sm = 1;
  int codes = 0;  // kept in shared memory; a share with more is read from device memory every time
  int window_words = 0;
};

template <MergeConfig kConfig> struct MergeShared {
  using Window = PositionWindow<kConfig.window_words>;

  alignas(16) std::uint64_t codes[kConfig.codes];
  Window window;
  SelectShared select;
  alignas(16) unsigned totals[kBuckets];  // of the cluster
  PieceBits bits;
  unsigned offsets[kMaxParts + 1];  // of the pieces' codes in the share, and their number
  unsigned num_codes;               // the same
  unsigned taken;                   // of this thread block
};

// The same variable of another thread block of the cluster.
template <typename T> __device__ inline T load_from_rank(const T& variable, int rank) {
  static_assert(sizeof(T) == sizeof(unsigned));
  const auto local = static_cast<unsigned>(__cvta_generic_to_shared(&variable));
  unsigned remote = 0;
  unsigned value = 0;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
  return static_cast<T>(value);
}

inline constexpr int kMaxCluster = 8;

// The same variable of every thread block of the cluster, in flight together: `combine` takes them one
// after another.
template <typename T, typename Combine>
__device__ inline void load_from_ranks(const T& variable, int cluster, const Combine& combine) {
  T values[kMaxCluster];
#pragma unroll
  for (int rank = 0; rank < kMaxCluster; ++rank) {
    if (rank < cluster) values[rank] = load_from_rank(variable, rank);
  }
#pragma unroll
  for (int rank = 0; rank < kMaxCluster; ++rank) {
    if (rank < cluster) combine(values[rank], rank);
  }
}

template <MergeConfig kConfig> class RowMerge {
 public:
  __device__ RowMerge(const IndexParams& params, MergeShared<kConfig>& shared, int rank,
                      int cluster)
      : params_(params), shared_(shared), rank_(rank), cluster_(cluster) {}

  // Row `row` of the index-th cut block. All of a cluster take the same way.
  __device__ void run(int index, int row) {
    mark_pieces(team_, params_, shared_.bits);
    list_ = find_pieces(shared_.bits, params_.parts, index);
    row_ = row;
    if (list_.first < 0 || (header(0).scored_rows >> row & 1) == 0) return;
    first_ = list_.count * rank_ / cluster_;
    end_ = list_.count * (rank_ + 1) / cluster_;
    find_offsets();
    read_codes();
    const auto top_k = static_cast<unsigned>(params_.batch.top_k);
    const unsigned total = count_all();
    const SelectBound bound = total > top_k ? find_bound(team_, ranks(), codes(), top_k,
                                                         shared_.select, ClusterCounts{this})
                                            : SelectBound{};
    write(bound.code);
  }

 private:
  static constexpr int kThreads = kConfig.threads;
  static constexpr int kChunk = 256;  // codes that a warp takes at a time
  static constexpr int kChunks = (IndexConfig::kPoolKeys + kChunk - 1) / kChunk;

  struct ClusterCounts {
    const RowMerge* merge;

    template <typename Threads>
    __device__ const unsigned (&sum(const Threads& team, SelectShared& select, int pass)
                                   const)[kBuckets] {
      merge->sync_all();
      MergeShared<kConfig>& shared = merge->shared_;
      if (team.thread < kBuckets) {
        unsigned sum = 0;
        load_from_ranks(select.bins[pass % 3][team.thread], merge->cluster_,
                        [&](unsigned count, int) { sum += count; });
        shared.totals[team.thread] = sum;
      }
      team.sync();
      return shared.totals;
    }
    template <typename Threads>
    __device__ unsigned least(const Threads&, SelectShared& select, int side) const {
      merge->sync_all();
      unsigned least = 0xffffffff;
      load_from_ranks(select.least[side], merge->cluster_,
                      [&](unsigned other, int) { least = min(least, other); });
      return least;
    }
    __device__ unsigned greatest(const SelectShared& select, int side) const {
      unsigned greatest = 0;
      load_from_ranks(select.greatest[side], merge->cluster_,
                      [&](unsigned other, int) { greatest = max(greatest, other); });
      return greatest;
    }
  };

  __device__ void sync_all() const {
    cute::cluster_arrive();
    cute::cluster_wait();
  }
  __device__ const PieceHeader& header(int piece) const {
    return params_.pieces.headers[list_.slot(piece)];
  }
  __device__ const std::uint64_t* piece_codes(int piece) const {
    const std::int64_t at = std::int64_t{list_.slot(piece)} * params_.batch.block_tokens + row_;
    return params_.pieces.codes + at * IndexConfig::kPoolKeys;
  }

  // Of the share's pieces.
  __device__ void find_offsets() {
    if (team_.warp() == 0) {
      unsigned sum = 0;
      for (int base = first_; base < end_; base += 32) {
        const int piece = base + team_.lane();
        const unsigned count =
            piece < end_ ? static_cast<unsigned>(header(piece).counts[row_]) : 0u;
        const unsigned inclusive = sum_up_to_lane(count, team_.lane());
        if (piece < end_) shared_.offsets[piece - first_] = sum + inclusive - count;
        sum += __shfl_sync(kWholeWarp, inclusive, 31);
      }
      if (team_.lane() == 0) shared_.offsets[end_ - first_] = shared_.num_codes = sum;
    }
    team_.sync();
  }
  __device__ unsigned num_codes() const { return shared_.num_codes; }
  __device__ bool is_kept() const { return num_codes() <= kConfig.codes; }

  // visit(code, its place in the share) for every code in device memory, 32 at a time to a warp.
  template <typename Visit> __device__ void for_each_in_pieces(const Visit& visit) const {
    const int units = (end_ - first_) * kChunks;
    for (int unit = team_.warp(); unit < units; unit += kThreads / 32) {
      const int piece = unit / kChunks;
      const unsigned offset = shared_.offsets[piece];
      const auto count = static_cast<int>(shared_.offsets[piece + 1] - offset);
      const int begin = unit % kChunks * kChunk;
      if (begin >= count) continue;
      const std::uint64_t* source = piece_codes(first_ + piece);
#pragma unroll
      for (int i = 0; i < kChunk; i += 32) {
        const int place = begin + i + team_.lane();
        if (place < count) visit(source[place], offset + static_cast<unsigned>(place));
      }
    }
  }

  __device__ void read_codes() {
    if (is_kept()) {
      for_each_in_pieces([&](std::uint64_t code, unsigned place) { shared_.codes[place] = code; });
    }
    team_.sync();
  }

  __device__ auto codes() const {
    return [this](const auto& visit) {
      const unsigned count = num_codes();
      if (is_kept()) {
#pragma unroll 4
        for (unsigned i = team_.thread; i < count; i += kThreads) visit(shared_.codes[i]);
      } else {
        for_each_in_pieces([&](std::uint64_t code, unsigned) { visit(code); });
      }
    };
  }

  __device__ auto ranks() const {
    return [this](const auto& visit) {
      codes()([&](std::uint64_t code) { visit(static_cast<unsigned>(code >> 32)); });
    };
  }

  // Of the whole cluster.
  __device__ unsigned count_all() {
    sync_all();
    unsigned sum = 0;
    load_from_ranks(shared_.num_codes, cluster_, [&](unsigned count, int) { sum += count; });
    return sum;
  }

  __device__ void write(std::uint64_t bound) {
    unsigned own = 0;
    codes()([&](std::uint64_t code) { own += code >= bound ? 1 : 0; });
    const TeamSum sum = sum_before(team_, own, shared_.select.warp_sums);
    if (team_.thread == 0) shared_.taken = sum.total;
    sync_all();
    const int token = header(0).first_token + row_;
    RowOutput output{.row = params_.out + token * params_.out_stride};
    load_from_ranks(shared_.taken, cluster_,
                    [&](unsigned taken, int rank) { output.written += rank < rank_ ? taken : 0; });
    sync_all();  // nobody reads from a thread block that has left
    if (first_ < end_) {
      write_positions(team_, codes(), bound,
                      static_cast<unsigned>(header(first_).first_tile * kIndexTileKeys),
                      static_cast<unsigned>(header(end_ - 1).end_tile * kIndexTileKeys), output,
                      shared_.window, shared_.select.warp_sums);
    }
    if (rank_ == cluster_ - 1) fill_rest(team_, output, params_.batch.top_k);
  }

  const IndexParams& params_;
  MergeShared<kConfig>& shared_;
  const Team<kThreads> team_{static_cast<int>(threadIdx.x), 1};
  const int rank_;
  const int cluster_;
  PieceList list_{};
  int row_ = 0;
  int first_ = 0;  // pieces of this thread block's share
  int end_ = 0;
};

}  // namespace quire::cuda::hopper
