// SPDX-License-Identifier: Apache-2.0
// Four warps: walk the cluster's part of the work, copy this block's half of rows of e4m3 as the cache
// has them, and write them into the ring as bf16. A warp has 16 rows of every tile from end to end, so
// that nobody waits for another warp between the copy and the conversion; copies run ahead by
// raw_stages - 1 tiles, across the borders of items.
#pragma once

#include "cuda/hopper/flash_attention/decode/async_copy.cuh"
#include "cuda/hopper/latent_attention/convert_row.cuh"
#include "cuda/hopper/mla_decode/roles/publish_items.cuh"

namespace quire::cuda::hopper {

// 4 or 8 bytes; zeros, where `is_there` is false.
template <int kBytes>
__device__ inline void copy_few(void* target, const void* source, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(target));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(source),
               "n"(kBytes), "r"(is_there ? kBytes : 0)
               : "memory");
}

template <LatentConfig kConfig> class ConvertRows {
 public:
  __device__ ConvertRows(const MlaDecodeParams& params, LatentShared<kConfig>& shared, int rank)
      : params_(params),
        shared_(shared),
        rank_(rank),
        thread_(static_cast<int>(threadIdx.x) - LatentConfig::kThreads),
        items_(shared, thread_ == 0) {}

  // `cluster`: whose part.
  __device__ void run(int cluster) {
    WorkWalk walk = start_walk(params_, cut_batch(params_), cluster);
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      items_.publish(describe_item(params_.batch, work, piece));
      copy_tiles(work, piece, walk.sequence());
    }
    for (int i = 0; i < kAhead; ++i) {
      advance_copies(false);
      if (copied_ > kAhead) convert_oldest();
    }
    items_.publish({});
  }

 private:
  static constexpr int kKeys = LatentConfig::kWarpKeys;
  static constexpr int kAhead = kConfig.raw_stages - 1;

  __device__ int lane() const { return thread_ % 32; }
  __device__ int first_row() const { return thread_ / 32 * kKeys; }
  // The warp's row of a tile that is being copied or converted.
  __device__ std::byte* raw_row(int slot, int row) const {
    return &shared_.raw[(slot * LatentConfig::kKeys + first_row() + row) * LatentConfig::kRawBytes];
  }

  __device__ void copy_tiles(const SequenceWork& work, const WorkPiece& piece, int sequence) {
    int key = (work.first_block + piece.begin) * kBlockKeys + first_row();
    for (int tile = piece.begin; tile < piece.end; ++tile, key += kBlockKeys) {
      const int column = key / params_.pages.page_size;
      const int row = key - column * params_.pages.page_size;
      const bool is_mapped = copy_rows(sequence, column, row, work.num_keys() - key);
      advance_copies(is_mapped);
      if (copied_ > kAhead) convert_oldest();
    }
  }

  // Bit i of `mapped_`: the tile copied i tiles ago has pages.
  __device__ void advance_copies(bool is_mapped) {
    asm volatile("cp.async.commit_group;" ::: "memory");
    mapped_ = mapped_ << 1 | (is_mapped ? 1U : 0U);
    ++copied_;
    slot_ = slot_ + 1 == kConfig.raw_stages ? 0 : slot_ + 1;
  }

  // 16 rows of one page, of which the first `count` are the sequence's. False: there is no page.
  __device__ bool copy_rows(int sequence, int column, int row, int count) {
    const LatentPages& pages = params_.pages;
    const bool is_known = count > 0 && column < pages.max_pages;
    const unsigned page =
        is_known ? pages.table[sequence * pages.table_stride + column] : pages.num_pages;
    const bool is_mapped = page < pages.num_pages;
    const int live = is_mapped ? count : 0;
    const std::byte* rows =
        is_mapped ? pages.rows + page * pages.page_stride_bytes + row * pages.token_stride_bytes
                  : pages.rows;
    copy_chunks<LatentConfig::kColumns / 16>(rows + rank_ * LatentConfig::kColumns, 0, live);
    const LatentRowFormat& format = params_.format;
    if (format.has_fp8_rope) {
      copy_chunks<LatentConfig::kTailColumns / 16>(
          rows + format.rope_offset_bytes + rank_ * LatentConfig::kTailColumns,
          LatentConfig::kRawTail, live);
    } else {
      copy_chunks<LatentConfig::kTailChunks>(
          rows + format.rope_offset_bytes + rank_ * LatentConfig::kTailBytes,
          LatentConfig::kRawTail, live);
    }
    if (lane() < kKeys) copy_scales(rows, sequence, column, row, lane() < live);
    return is_mapped;
  }

  // kChunks · 16 bytes of every row to byte `target` of its place.
  template <int kChunks> __device__ void copy_chunks(const std::byte* rows, int target, int live) {
    constexpr int kRows = 32 / kChunks;  // at a time
#pragma unroll
    for (int i = 0; i < kKeys; i += kRows) {
      const int row = i + lane() / kChunks;
      if (row >= kKeys) break;
      const int byte = lane() % kChunks * 16;
      copy_async(raw_row(slot_, row) + target + byte,
                 rows + row * params_.pages.token_stride_bytes + byte, row < live,
                 L2Policy::evict_first);
    }
  }

  // Of row `lane`.
  __device__ void copy_scales(const std::byte* rows, int sequence, int column, int row,
                              bool is_live) {
    const LatentRowFormat& format = params_.format;
    std::byte* target = raw_row(slot_, lane()) + LatentConfig::kRawScales;
    if (format.row_scales_offset_bytes >= 0) {
      copy_few<8>(target,
                  rows + (is_live ? lane() * params_.pages.token_stride_bytes : 0) +
                      format.row_scales_offset_bytes + rank_ * 8,
                  is_live);
    } else if (format.token_scales != nullptr) {
      const unsigned page = is_live
                                ? format.scale_table[sequence * format.scale_table_stride + column]
                                : format.scale_pages;
      const bool is_there = page < format.scale_pages;
      copy_few<4>(target,
                  format.token_scales + (is_there ? page * format.scale_page_stride +
                                                        (row + lane()) * format.scale_token_stride
                                                  : 0),
                  is_there);
    }
  }

  __device__ void convert_oldest() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead) : "memory");
    __syncwarp();
    shared_.ring.wait_empty(at_);
    // slot_ is the next to be copied to: the oldest.
    convert_latents(slot_);
    convert_tails(slot_);
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    if (lane() == 0) {
      shared_.valid[at_.stage][thread_ / 32] = (mapped_ >> kAhead & 1) != 0 ? 0xffff : 0;
      shared_.ring.full[at_.stage].arrive();
    }
    at_.advance();
  }

  __device__ float2 scales_of(int slot, int row) const {
    const auto* scales =
        reinterpret_cast<const float2*>(raw_row(slot, row) + LatentConfig::kRawScales);
    if (params_.format.row_scales_offset_bytes >= 0) return *scales;
    const float one = params_.format.token_scales != nullptr ? scales->x : 1.0F;
    return {one, one};
  }

  // A lane takes 16 columns of every second row.
  __device__ void convert_latents(int slot) {
    LatentStage& stage = shared_.stages[at_.stage];
    const int part = lane() % 16;
#pragma unroll 4
    for (int i = lane() / 16; i < kKeys; i += 2) {
      const uint4 raw = *reinterpret_cast<const uint4*>(raw_row(slot, i) + part * 16);
      const float2 scales = scales_of(slot, i);
      const float scale = part < 8 ? scales.x : scales.y;  // 128 columns share one
      const int row = first_row() + i;
      std::byte* slab = stage.slabs[part / 4];
      const int chunk = part % 4 * 2;
      *reinterpret_cast<uint4*>(slab + slab_offset(row, chunk)) =
          convert_eight(raw.x, raw.y, scale);
      *reinterpret_cast<uint4*>(slab + slab_offset(row, chunk + 1)) =
          convert_eight(raw.z, raw.w, scale);
    }
  }

  // A lane takes 8 columns of two rows.
  __device__ void convert_tails(int slot) {
    std::byte* tail = shared_.stages[at_.stage].tail;
    const int chunk = lane() % 4;
    const bool is_scaled = params_.format.token_scales != nullptr;
#pragma unroll
    for (int i = lane() / 4; i < kKeys; i += 8) {
      const std::byte* raw = raw_row(slot, i) + LatentConfig::kRawTail;
      const float scale = is_scaled ? scales_of(slot, i).x : 1.0F;
      uint4 eight;
      if (params_.format.has_fp8_rope) {
        const uint2 few = *reinterpret_cast<const uint2*>(raw + chunk * 8);
        eight = convert_eight(few.x, few.y, scale);
      } else {
        eight = *reinterpret_cast<const uint4*>(raw + chunk * 16);
        if (is_scaled) eight = scale_eight(eight, scale);
      }
      *reinterpret_cast<uint4*>(tail + tail_offset(first_row() + i, chunk)) = eight;
    }
  }

  const MlaDecodeParams& params_;
  LatentShared<kConfig>& shared_;
  const int rank_;
  const int thread_;
  PublishItems<kConfig> items_;
  int slot_ = 0;    // of `raw`, the next tile's
  int copied_ = 0;  // tiles, the empty ones at the end too
  unsigned mapped_ = 0;
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::hopper
