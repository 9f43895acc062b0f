// SPDX-License-Identifier: Apache-2.0
// What becomes of a pool of keys: its worst are dropped, its best are written out, or all of it is
// kept for the merge with other thread blocks' pieces. By the team of one row.
#pragma once

#include "cuda/hopper/mla_indexer/shared.cuh"

namespace quire::cuda::hopper {

template <IndexConfig kConfig> using RowTeam = Team<IndexConfig::kScorers / kConfig.tokens>;

template <IndexConfig kConfig> class RowPool {
 public:
  __device__ RowPool(const RowTeam<kConfig>& team, IndexShared<kConfig>& shared, int row)
      : team_(team), shared_(shared), pool_(shared.pools[row]), row_(row) {}

  // The best top_k stay, in any order.
  __device__ void drop_worst(int top_k) {
    const auto count = static_cast<int>(shared_.counts[row_]);
    if (count <= top_k) return;
    if (team_.thread < 2) shared_.num_moves[row_][team_.thread] = 0;
    const SelectBound bound = find_bound(count, top_k);
    team_.sync();  // the gaps are written where ranks were counted
    auto& gaps = shared_.counting[row_].gaps;
    auto& movers = shared_.placing[row_].movers;
    for (int first = 0; first < count; first += kThreads) {
      const int i = first + team_.thread;
      const bool is_taken = i < count && pool_.code(i) >= bound.code;
      list(i < top_k && !is_taken, i, shared_.num_moves[row_][0], gaps);
      list(i >= top_k && is_taken, i, shared_.num_moves[row_][1], movers);
    }
    team_.sync();
    const auto moves = static_cast<int>(shared_.num_moves[row_][0]);
    for (int i = team_.thread; i < moves; i += kThreads) {
      pool_.ranks[gaps[i]] = pool_.ranks[movers[i]];
      pool_.positions[gaps[i]] = pool_.positions[movers[i]];
    }
    if (team_.thread == 0) {
      shared_.counts[row_] = static_cast<unsigned>(top_k);
      shared_.to_beat[row_] = bound.rank_to_beat();
    }
  }

  __device__ void write_best(int num_keys, int top_k, std::int32_t* out) {
    const auto count = static_cast<int>(shared_.counts[row_]);
    const SelectBound bound = count > top_k ? find_bound(count, top_k) : SelectBound{};
    RowOutput output{.row = out};
    team_.sync();  // warp_sums
    write_positions(team_, codes(count), bound.code, 0, static_cast<unsigned>(num_keys), output,
                    shared_.placing[row_].window, shared_.counting[row_].select.warp_sums);
    fill_rest(team_, output, top_k);
  }

  __device__ void keep(PieceHeader& header, std::uint64_t* out) {
    const auto count = static_cast<int>(shared_.counts[row_]);
    if (team_.thread == 0) header.counts[row_] = count;
    for (int i = team_.thread; i < count; i += kThreads) out[i] = pool_.code(i);
  }

 private:
  static constexpr int kThreads = RowTeam<kConfig>::kThreads;

  // By a whole warp.
  __device__ void list(bool is_listed, int i, unsigned& count,
                       std::uint16_t (&list)[kPoolMoves]) const {
    const unsigned listed = __ballot_sync(kWholeWarp, is_listed);
    if (listed == 0) return;
    const auto lane = static_cast<unsigned>(team_.lane());
    unsigned base = 0;
    if (lane == 0) base = atomicAdd(&count, static_cast<unsigned>(__popc(listed)));
    base = __shfl_sync(kWholeWarp, base, 0);
    if (is_listed) {
      list[base + __popc(listed & ((1u << lane) - 1u))] = static_cast<std::uint16_t>(i);
    }
  }

  __device__ auto ranks(int count) const {
    return [this, count](const auto& visit) {
#pragma unroll 8
      for (int i = team_.thread; i < count; i += kThreads) visit(pool_.ranks[i]);
    };
  }
  __device__ auto codes(int count) const {
    return [this, count](const auto& visit) {
#pragma unroll 4
      for (int i = team_.thread; i < count; i += kThreads) visit(pool_.code(i));
    };
  }
  __device__ SelectBound find_bound(int count, int top_k) {
    return hopper::find_bound(team_, ranks(count), codes(count), static_cast<unsigned>(top_k),
                              shared_.counting[row_].select);
  }

  const RowTeam<kConfig> team_;
  IndexShared<kConfig>& shared_;
  Pool& pool_;
  const int row_;
};

}  // namespace quire::cuda::hopper
