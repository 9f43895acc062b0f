// SPDX-License-Identifier: Apache-2.0
// bf16 rows: a warp copies 512 bytes of a row at a time; nothing passes through registers.
#pragma once

#include "cuda/hopper/flash_attention/decode/async_copy.cuh"
#include "cuda/hopper/sparse_mla/row_fill.cuh"
#include "cuda/hopper/tile/opaque.cuh"

namespace quire::cuda::hopper {

template <typename Variant> class RowFill<Variant, RowKind::bf16, 1> {
 public:
  static constexpr int kFirstTurn = -2;

  __device__ explicit RowFill(SparseShared<Variant>& shared)
      : shared_(shared),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup / 32)) {}

  __device__ void begin(const TileRun& run) {
    finder_.begin(run, PagePlaces::of_rows(run.stream.rows, run.sequence), kConfig.keys,
                  warp_ * kRows + lane_ % kRows);
  }

  __device__ void turn(int index) {
    const std::byte* row = finder_.step(kConfig.keys);
    if (index < 0) return;
    const std::uint32_t found = __ballot_sync(0xffffffff, row != nullptr);
    shared_.left_ring.wait_empty(at_.half);
    write_mask(found);
    fill_half<0>(row, found, shared_.left[at_.half.stage]);
    arrive(shared_.left_ring.full[at_.half.stage]);
    fill_rope(row, found);
    shared_.right_ring.wait_empty(at_.half);
    fill_half<1>(row, found, shared_.right[at_.half.stage]);
    arrive(shared_.right_ring.full[at_.half.stage]);
    at_.advance();
  }

 private:
  static constexpr SparseConfig kConfig = Variant::kConfig;
  static constexpr int kRows = kConfig.warp_rows();

  // Once this thread's copies are there.
  __device__ void arrive(FullBarrier& full) const {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<std::uint64_t*>(&full));
  }

  __device__ void write_mask(std::uint32_t found) {
    if (lane_ != 0) return;
    shared_.masks.parts[at_.half.stage][warp_] = static_cast<std::uint16_t>(found);
    shared_.left_ring.full[at_.half.stage].arrive();
  }

  template <int kHalf>
  __device__ void fill_half(const std::byte* row, std::uint32_t found, std::byte* slabs) const {
    const int lane = opaque(lane_);
    const int column = kHalf * SparseConfig::kHalfColumns * 2 + lane * 16;
    std::byte* slab = slabs + lane / 8 * kConfig.slab_bytes() + warp_ * kRows * kRowBytes;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      copy_async(slab + piece_offset(i, lane % 8), row_of_lane(row, i) + column,
                 (found >> i & 1) != 0, L2Policy::normal);
    }
  }
  __device__ void fill_rope(const std::byte* row, std::uint32_t found) {
    shared_.rope_ring.wait_empty(at_.rope);
    std::byte* slab = shared_.rope[at_.rope.stage] + warp_ * kRows * kRowBytes;
    const int lane = opaque(lane_);
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      const int line = i + lane / 8;
      copy_async(slab + piece_offset(line, lane % 8),
                 row_of_lane(row, line) + SparseConfig::kLatent * 2 + lane % 8 * 16,
                 (found >> line & 1) != 0, L2Policy::normal);
    }
    arrive(shared_.rope_ring.full[at_.rope.stage]);
  }

  SparseShared<Variant>& shared_;
  int lane_;
  int warp_;
  RowFinder finder_;
  TilePlace<Variant> at_;
};

}  // namespace quire::cuda::hopper
