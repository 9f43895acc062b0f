// SPDX-License-Identifier: Apache-2.0
// Four warps: walk the cluster's part of the work, have the copy engine bring this block's half of rows
// of e4m3 as the cache has them, and write them into the ring as bf16. A warp has 16 rows of every tile
// from end to end, so that nobody waits for another warp between the copy and the conversion; copies run
// ahead by raw_stages - 1 tiles, across the borders of items. (Copies by threads would not: the fence
// between what is written here and the products waits for all of them.)
#pragma once

#include "cuda/hopper/latent_attention/convert_row.cuh"
#include "cuda/hopper/mla_decode/roles/find_part.cuh"
#include "cuda/hopper/mla_decode/roles/publish_items.cuh"
#include "cuda/hopper/tile/tma.cuh"

namespace quire::cuda::hopper {

template <LatentConfig kConfig> class ConvertRows {
 public:
  __device__ ConvertRows(const MlaDecodeParams& params, LatentShared<kConfig>& shared, int rank)
      : params_(params),
        shared_(shared),
        rank_(rank),
        warp_(__shfl_sync(0xffffffff, (static_cast<int>(threadIdx.x) - LatentConfig::kThreads) / 32,
                          0)),
        items_(shared, threadIdx.x == LatentConfig::kThreads) {}

  // `cluster`: whose part.
  __device__ void run(int cluster) {
    if (lane() == 0) {
      prefetch(params_.latents);
      prefetch(params_.tails);
    }
    const auto thread = static_cast<int>(threadIdx.x % 128);
    prefetch_table(params_.pages, params_.batch.size, thread);
    const ClusterPart part = find_part(params_, shared_.line, cluster, thread);
    WorkWalk walk(params_.batch, params_.split, part.cuts, part.place, cluster);
    for (WorkPiece piece; walk.next(piece);) {
      const SequenceWork& work = walk.work();
      items_.publish(describe_item(params_.batch, work, piece));
      convert_item(work, piece, walk.sequence());
    }
    for (int i = 0; i < kAhead; ++i) {
      note({});
      if (copied_ > kAhead) convert_oldest();
    }
    items_.publish({});
  }

 private:
  static constexpr int kKeys = LatentConfig::kWarpKeys;
  static constexpr int kAhead = kConfig.raw_stages - 1;

  // 16 rows on their way.
  struct Copied {
    int live = 0;        // the first ones are the sequence's; 0 also where there is no page
    float scale = 1.0F;  // of row `lane`, where rows have one
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ int first_row() const { return warp_ * kKeys; }
  __device__ RawRows& raw(int slot) const { return shared_.raw[slot][warp_]; }

  __device__ void convert_item(const SequenceWork& work, const WorkPiece& piece, int sequence) {
    int key = (work.first_block + piece.begin) * kBlockKeys + first_row();
    for (int tile = piece.begin; tile < piece.end; ++tile, key += kBlockKeys) {
      note(copy_rows(sequence, key, work.num_keys() - key));
      if (copied_ > kAhead) convert_oldest();
    }
  }

  __device__ void note(const Copied& newest) {
#pragma unroll
    for (int i = kAhead; i > 0; --i) queue_[i] = queue_[i - 1];
    queue_[0] = newest;
    ++copied_;
    copy_at_.advance();
  }

  // 16 rows of one page from `key` on, of which the first `count` are the sequence's.
  __device__ Copied copy_rows(int sequence, int key, int count) {
    const LatentPages& pages = params_.pages;
    const int column = key / pages.page_size;
    const int row = key - column * pages.page_size;
    const bool is_known = count > 0 && column < pages.max_pages;
    const unsigned page =
        is_known ? pages.table[sequence * pages.table_stride + column] : pages.num_pages;
    if (lane() == 0) copy_boxes(row, static_cast<int>(min(page, pages.num_pages)));
    __syncwarp();
    Copied copied{.live = page < pages.num_pages ? min(count, kKeys) : 0};
    if (params_.format.token_scales != nullptr && lane() < copied.live) {
      copied.scale = token_scale(sequence, column, row + lane());
    }
    return copied;
  }

  __device__ void copy_boxes(int row, int page) {
    const LatentRowFormat& format = params_.format;
    RawRows& rows = raw(copy_at_.stage);
    FullBarrier& full = shared_.raw_full[copy_at_.stage][warp_];
    const int rope_bytes = rope_row_bytes();
    const bool has_scales = format.row_scales_offset_bytes >= 0;
    full.arrive_and_expect_tx(kKeys *
                              (LatentConfig::kColumns + rope_bytes + (has_scales ? 16 : 0)));
    const auto load = [&](const TensorMap& map, void* target, int byte) {
      load_box({.map = &map, .shared = target, .full = &full, .hint = L2Hint::EVICT_FIRST}, byte,
               row, page);
    };
    load(params_.latents, rows.latents, rank_ * LatentConfig::kColumns);
    load(params_.tails, rows.rope, format.rope_offset_bytes + rank_ * rope_bytes);
    if (has_scales) load(params_.scales, rows.scales, format.row_scales_offset_bytes);
  }
  // Of this block's half.
  __device__ int rope_row_bytes() const {
    return params_.format.has_fp8_rope ? LatentConfig::kTailColumns : LatentConfig::kTailBytes;
  }

  __device__ float token_scale(int sequence, int column, int row) const {
    const LatentRowFormat& format = params_.format;
    const unsigned page = format.scale_table[sequence * format.scale_table_stride + column];
    if (page >= format.scale_pages) return 0.0F;
    return format.token_scales[page * format.scale_page_stride + row * format.scale_token_stride];
  }

  __device__ void convert_oldest() {
    const Copied& oldest = queue_[kAhead];
    shared_.raw_full[convert_at_.stage][warp_].wait(convert_at_.phase);
    shared_.ring.wait_empty(at_);
    convert_latents(raw(convert_at_.stage), oldest);
    convert_tails(raw(convert_at_.stage), oldest);
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    if (lane() == 0) {
      shared_.valid[at_.stage][warp_] = oldest.live > 0 ? 0xffff : 0;
      shared_.ring.full[at_.stage].arrive();
    }
    convert_at_.advance();
    at_.advance();
  }

  // Of a row's 256 columns in this block.
  __device__ float2 scales_of(const RawRows& rows, const Copied& copied, int row) const {
    if (params_.format.row_scales_offset_bytes >= 0) {
      return reinterpret_cast<const float2*>(rows.scales[row])[rank_];
    }
    const float one = __shfl_sync(0xffffffff, copied.scale, row);
    return {one, one};
  }

  // A lane takes 16 columns of every second row.
  __device__ void convert_latents(const RawRows& rows, const Copied& copied) {
    LatentStage& stage = shared_.stages[at_.stage];
    const int part = lane() % 16;
    std::byte* slab = stage.slabs[part / 4];
    const int chunk = part % 4 * 2;
#pragma unroll 4
    for (int i = lane() / 16; i < kKeys; i += 2) {
      const uint4 raw = *reinterpret_cast<const uint4*>(rows.latents[i] + part * 16);
      const float2 scales = scales_of(rows, copied, i);
      const float scale = part < 8 ? scales.x : scales.y;  // 128 columns share one
      const bool is_live = i < copied.live;
      const int row = first_row() + i;
      *reinterpret_cast<uint4*>(slab + slab_offset(row, chunk)) =
          is_live ? convert_eight(raw.x, raw.y, scale) : uint4{};
      *reinterpret_cast<uint4*>(slab + slab_offset(row, chunk + 1)) =
          is_live ? convert_eight(raw.z, raw.w, scale) : uint4{};
    }
  }

  // A lane takes 8 columns of two rows.
  __device__ void convert_tails(const RawRows& rows, const Copied& copied) {
    std::byte* tail = shared_.stages[at_.stage].tail;
    const int chunk = lane() % 4;
    const bool is_scaled = params_.format.token_scales != nullptr;
#pragma unroll
    for (int i = lane() / 4; i < kKeys; i += 8) {
      const std::byte* raw = rows.rope + i * rope_row_bytes();
      const float token = __shfl_sync(0xffffffff, copied.scale, i);
      const float scale = is_scaled ? token : 1.0F;
      uint4 eight;
      if (params_.format.has_fp8_rope) {
        const uint2 few = *reinterpret_cast<const uint2*>(raw + chunk * 8);
        eight = convert_eight(few.x, few.y, scale);
      } else {
        eight = *reinterpret_cast<const uint4*>(raw + chunk * 16);
        if (is_scaled) eight = scale_eight(eight, scale);
      }
      *reinterpret_cast<uint4*>(tail + tail_offset(first_row() + i, chunk)) =
          i < copied.live ? eight : uint4{};
    }
  }

  const MlaDecodeParams& params_;
  LatentShared<kConfig>& shared_;
  const int rank_;
  const int warp_;  // of the four
  PublishItems<kConfig> items_;
  Copied queue_[kConfig.raw_stages];  // the newest first
  int copied_ = 0;                    // tiles, the empty ones at the end too
  RingPosition<kConfig.raw_stages> copy_at_;
  RingPosition<kConfig.raw_stages> convert_at_;
  RingPosition<kConfig.stages> at_;
};

}  // namespace quire::cuda::hopper
