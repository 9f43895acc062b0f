// SPDX-License-Identifier: Apache-2.0
// A block's 64 rows of every item's queries into shared memory, by two warps, while the item before is
// at its last weights and its output.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "cuda/common/split_kv/work_walk.h"
#include "cuda/sm90/mla_decode/latent/load_queries.cuh"
#include "cuda/sm90/mla_decode/params.h"
#include "cuda/sm90/mla_decode/pingpong/shared.cuh"
#include "cuda/sm90/mla_decode/roles/describe_item.cuh"

namespace quire::cuda::sm90::mla_decode {

class LoadRowsOfQ {
 public:
  // `warp`: of those who load queries.
  __device__ LoadRowsOfQ(const MlaDecodeParams& params, PingpongShared& shared, int warp, int rank)
      : params_(params), shared_(shared), warp_(warp), first_row_(rank * Pingpong::kRows) {}

  __device__ void run(WorkWalk walk) {
    for (WorkPiece piece; walk.next(piece);) {
      const LatentItem item = describe_item(params_.batch, walk.work(), piece);
      if (warp_ == 0) publish(item);
      load(item);
    }
    if (warp_ == 0) publish({});
  }

 private:
  __device__ void publish(const LatentItem& item) {
    if (threadIdx.x % 32 == 0) {
      shared_.item_ring.wait_empty(item_at_);
      shared_.items[item_at_.stage] = item;
      shared_.item_ring.full[item_at_.stage].arrive();
    }
    __syncwarp();
    item_at_.advance();
  }

  // Rows beyond the item's are zeros.
  __device__ void load(const LatentItem& item) {
    const LatentQueries& queries = params_.attend.queries;
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const int place = warp_ * kWarpRows;
    // Lane l knows where the warp's row l is.
    const int own = first_row_ + place + lane;
    const int token = own / params_.attend.heads;
    const std::int64_t offset = (item.first_token + token) * queries.token_stride_bytes +
                                (own - token * params_.attend.heads) * queries.head_stride_bytes;
    shared_.q_empty.wait(phase_);
    phase_ ^= 1;
#pragma unroll 2  // code that runs once is mostly waited for
    for (int i = 0; i < kWarpRows; ++i) {
      const std::byte* source = queries.data + __shfl_sync(0xffffffff, offset, i) + lane * 16;
      const bool is_there = first_row_ + place + i < item.rows;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        copy_query(&shared_.q[4 * part + lane / 8][swizzle_column_offset(place + i, lane % 8)],
                   source + part * 512, is_there);
      }
    }
#pragma unroll 2
    for (int i = 0; i < kWarpRows; i += 4) {
      const int row = i + lane / 8;
      copy_query(
          &shared_.q[Pingpong::kRopeSwizzleColumn][swizzle_column_offset(place + row, lane % 8)],
          queries.data + __shfl_sync(0xffffffff, offset, row) + LatentConfig::kLatent * 2 +
              lane % 8 * 16,
          first_row_ + place + row < item.rows);
    }
    cute::cp_async_wait<0>();
    cutlass::arch::fence_view_async_shared();
    arrive_once(shared_.q_full);
  }

  static constexpr int kWarpRows = Pingpong::kRows / Pingpong::kQueryWarps;
  static_assert(kWarpRows == 32);

  const MlaDecodeParams& params_;
  PingpongShared& shared_;
  const int warp_;
  const int first_row_;
  std::uint32_t phase_ = 1;
  RingPosition<Pingpong::kItems> item_at_;
};

}  // namespace quire::cuda::sm90::mla_decode
