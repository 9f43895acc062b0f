// SPDX-License-Identifier: Apache-2.0
// e4m3 rows for two blocks with the same keys and other heads: each block decodes half of a tile's rows
// and sends them to the other. A tile's bytes wait in registers from one turn to the next, four lanes to
// a row; before they are loaded, their lines have been asked for (without that: 4 % slower).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/common/pipeline/ring.cuh"
#include "cuda/common/rows/load_once.cuh"
#include "cuda/common/thread/thread.cuh"
#include "cuda/sm90/sparse_mla/row_fill.cuh"

namespace quire::cuda::sm90::sparse_mla {

// From the shared memory of a block to the same place of the other block of its cluster. What arrives
// counts as bytes at a barrier there; who waits at it sees them.

__device__ inline std::uint32_t rank_in_pair() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

class PairWriter {
 public:
  __device__ explicit PairWriter(std::uint32_t rank)
      : rank_(rank), to_other_(address_in(rank ^ 1) - address_in(rank)) {}

  __device__ int rank() const { return static_cast<int>(rank_); }

  // By TMA, which a fence has shown them. (By stores to the other block, 16 bytes a lane,
  // sending costs more than twice as much.)
  __device__ void send(const std::byte* place, int bytes, const FullBarrier& full) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];" ::"r"(shared_address(place) + to_other_),
        "r"(shared_address(place)), "r"(bytes), "r"(shared_address(&full) + to_other_)
        : "memory");
  }
  // To both blocks.
  __device__ void store(std::uint32_t* place, std::uint32_t word, const FullBarrier& full) const {
    *place = word;
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     shared_address(place) + to_other_),
                 "r"(word), "r"(shared_address(&full) + to_other_)
                 : "memory");
  }

 private:
  // Of the dynamic shared memory of a block.
  __device__ static std::uint32_t address_in(std::uint32_t rank) {
    extern __shared__ __align__(1024) std::byte memory[];
    return address_in_block(memory, rank);
  }

  std::uint32_t rank_;
  std::uint32_t to_other_;  // between the two blocks' addresses of a place
};

template <typename Variant, RowShape kShape> class RowFill<Variant, RowKind::fp8, 2, kShape> {
 public:
  static constexpr int kFirstTurn = -4;

  __device__ explicit RowFill(SparseShared<Variant>& shared)
      : shared_(shared),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup / 32)),
        writer_(rank_in_pair()) {}

  // Of the four lanes of a row, the second finds its scale where that has a tensor of its own.
  __device__ void begin(const TileRun& run) {
    const GatherStream& stream = run.stream;
    stream_ = &stream;
    finder_.begin(run,
                  finds_scale() ? PagePlaces::of_scales<kScaleBytes>(stream, run.sequence)
                                : PagePlaces::of_rows(stream, run.sequence),
                  kConfig.keys,
                  (writer_.rank() * SparseConfig::kWarps + warp_) * kRows + lane_ / 4);
    next_ = nullptr;
    forget();
  }

  template <typename Meanwhile> __device__ void turn(int index, const Meanwhile& meanwhile) {
    if (index >= 0) store_tile();
    const std::byte* found = next_;
    next_ = finder_.step(kConfig.keys);
    if (index >= -1) load(found);
    ask_for(next_);
    meanwhile();
  }

 private:
  static constexpr SparseConfig kConfig = Variant::kConfig;
  static constexpr int kRows = 8;  // of a warp: one swizzle atom
  static constexpr int kLine = 128;
  static constexpr int kScaleBytes = kConfig.has_rope() ? sizeof(float) : 1;
  // Whole rows end in columns that are copied, as rope columns are.
  static constexpr int kCodedColumns =
      2 * SparseConfig::kHalfSwizzleColumns - (kConfig.has_rope() ? 0 : 1);
  // A row's scales: of 128 columns each, or the e8m0 bytes of 64 each.
  using Scales = std::conditional_t<kConfig.has_rope(), float4, uint2>;
  static_assert(kConfig.keys == 2 * SparseConfig::kWarps * kRows);

  __device__ const RowPart& latent() const { return stream_->rows.row_format.parts[0]; }
  __device__ ScaleSource scaling() const { return latent().scale_source; }
  __device__ bool finds_scale() const {
    return (!kConfig.has_rope() || scaling() == ScaleSource::plane) && lane_ % 4 == 1;
  }

  // Nothing is kept from one run to the next: the registers are others' in between.
  __device__ void forget() {
    for (uint4& chunk : latent_) chunk = {};
    for (uint4& chunk : rope_) chunk = {};
    scales_ = {};
  }

  // The lines of the row after the next one, into L2.
  __device__ void ask_for(const std::byte* row) const {
    if constexpr (!kConfig.has_rope()) {
      row = row_of_lane(row, lane_ & ~3);
      if (row == nullptr) return;
    } else {
      if (row == nullptr || finds_scale()) return;
    }
#pragma unroll
    for (int line = 0; line < 2; ++line) {
      const int offset = (line * 4 + lane_ % 4) * kLine;
      if (offset >= stream_->rows.row_format.row_bytes) return;
      prefetch_line(row + offset);
    }
  }

  // 16 bytes of each 64 latent columns, a fourth of the rope columns, the scales. What depends on the lane is computed
  // here each time: kept over store_tile, it would take registers from the decoding, which then waits for itself.
  __device__ void load(const std::byte* found) {
    const int lane = opaque(lane_);
    const std::byte* row = row_of_lane(found, lane & ~3);
    const std::byte* scale = row_of_lane(found, (lane & ~3) + 1);
    const bool is_there = row != nullptr;
    const std::uint32_t rows = __ballot_sync(0xffffffff, is_there);
    mask_ = __ballot_sync(0xffffffff, lane < kRows && (rows >> (lane * 4 & 31) & 1) != 0);
    const std::byte* from = row + lane % 4 * 16;
#pragma unroll
    for (int swizzle_column = 0; swizzle_column < kCodedColumns; ++swizzle_column) {
      latent_[swizzle_column] = load_chunk(from + swizzle_column * 64, is_there);
    }
    if (kConfig.has_rope() && stream_->rope_is_fp8) {
      rope_[0] = load_chunk(from + stream_->rope_offset_bytes, is_there);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        rope_[i] =
            load_chunk(from + stream_->rope_offset_bytes + rope_side(i, lane) * 64, is_there);
      }
    }
    load_scales(row, scale, is_there);
  }
  __device__ void load_scales(const std::byte* row, const std::byte* scale,
                              bool is_there) requires(kConfig.has_rope()) {
    const float without = scaling() == ScaleSource::plane ? 0.0F : 1.0F;  // a page of its scale
    scales_ = {without, without, without, without};
    if (scaling() == ScaleSource::in_row && is_there) {
      scales_ = __ldg(reinterpret_cast<const float4*>(row + latent().scale_offset_bytes));
    } else if (scaling() == ScaleSource::plane && scale != nullptr) {
      const float whole = __ldg(reinterpret_cast<const float*>(scale));
      scales_ = {whole, whole, whole, whole};
    }
  }
  // Scales of 0 where there is no page of them: bf16_pair() knows.
  __device__ void load_scales(const std::byte*, const std::byte* scale,
                              bool) requires(!kConfig.has_rope()) {
    has_scales_ = scale != nullptr;
    scales_ = {};
    if (!has_scales_) return;
    if (stream_->powers_are_words) {
      scales_ = __ldg(reinterpret_cast<const uint2*>(scale));
      return;
    }
    const std::int64_t stride = stream_->rows.scales.slot_stride;
    for (int i = 0; i < kCodedColumns; ++i) {
      const std::uint32_t code = __ldg(reinterpret_cast<const std::uint8_t*>(scale + i * stride));
      (i < 4 ? scales_.x : scales_.y) |= code << (i % 4 * 8);
    }
  }
  __device__ static uint4 load_chunk(const std::byte* from, bool is_there) {
    return is_there ? __ldg(reinterpret_cast<const uint4*>(from)) : uint4{};
  }

  __device__ void store_tile() {
    const int stage = at_.half.stage;
    const int first_row = (writer_.rank() * SparseConfig::kWarps + warp_) * kRows;
    FullBarrier& left_full = shared_.left_ring.full[stage];
    std::byte* left = shared_.left[stage] + first_row * kRowBytes;
    shared_.left_ring.wait_empty(at_.half);
    write_mask(left_full);
    store_half<0>(left);
    share<SparseConfig::kHalfSwizzleColumns>(left, left_full, sizeof(mask_));
    if constexpr (kConfig.has_rope()) {
      FullBarrier& rope_full = shared_.rope_ring.full[at_.rope.stage];
      std::byte* rope = shared_.rope[at_.rope.stage] + first_row * kRowBytes;
      shared_.rope_ring.wait_empty(at_.rope);
      store_rope(rope);
      share<1>(rope, rope_full, 0);
    }
    FullBarrier& right_full = shared_.right_ring.full[stage];
    std::byte* right = shared_.right[stage] + first_row * kRowBytes;
    shared_.right_ring.wait_empty(at_.half);
    store_half<1>(right);
    if constexpr (!kConfig.has_rope()) {
      store_rope(right + (SparseConfig::kHalfSwizzleColumns - 1) * kConfig.swizzle_column_bytes());
    }
    share<SparseConfig::kHalfSwizzleColumns>(right, right_full, 0);
    at_.advance();
  }

  // This warp's rows of some swizzle columns are there. They go to the other block, and as many come from there,
  // with `more` bytes.
  template <int kSwizzleColumns>
  __device__ void share(const std::byte* rows, FullBarrier& full, int more) const {
    constexpr int kBytes = kRows * kRowBytes;
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    if (lane_ == 0) full.arrive_and_expect_tx(kSwizzleColumns * kBytes + more);
    if (lane_ < kSwizzleColumns)
      writer_.send(rows + lane_ * kConfig.swizzle_column_bytes(), kBytes, full);
  }

  __device__ void write_mask(const FullBarrier& full) {
    if (lane_ != 0) return;
    const int part = writer_.rank() * SparseConfig::kWarps + warp_;
    writer_.store(&shared_.masks.parts[at_.half.stage][part], mask_, full);
  }

  // `half`: of the tile, at the warp's first row.
  template <int kHalf> __device__ void store_half(std::byte* half) {
    const int row = lane_ / 4;
    constexpr int kFirst = kHalf * SparseConfig::kHalfSwizzleColumns;
    constexpr int kLast = std::min(kFirst + SparseConfig::kHalfSwizzleColumns, kCodedColumns);
#pragma unroll
    for (int column = kFirst; column < kLast; ++column) {
      std::byte* to = half + (column - kFirst) * kConfig.swizzle_column_bytes();
      const uint4& bytes = latent_[column];
      const auto scale = scale_of(column);
      store_chunk(to + chunk_offset(row, lane_ % 4 * 2), decode(bytes.x, bytes.y, scale));
      store_chunk(to + chunk_offset(row, lane_ % 4 * 2 + 1), decode(bytes.z, bytes.w, scale));
    }
  }
  // Of a swizzle column.
  __device__ auto scale_of(int column) const {
    if constexpr (kConfig.has_rope()) {
      const float low = column < 4 ? scales_.x : scales_.z;
      const float high = column < 4 ? scales_.y : scales_.w;
      return column % 4 < 2 ? low : high;
    } else {
      const std::uint32_t four = column < 4 ? scales_.x : scales_.y;
      const std::uint32_t pair = bf16_pair_of_e8m0(four >> (column % 4 * 8) & 0xff);
      return has_scales_ ? pair : 0U;
    }
  }
  __device__ static uint4 decode(std::uint32_t low, std::uint32_t high, float scale) {
    return decode_vec8(low, high, scale);
  }
  __device__ static uint4 decode(std::uint32_t low, std::uint32_t high, std::uint32_t scale) {
    return decode_vec8_by_power(low, high, scale);
  }
  __device__ static void store_chunk(std::byte* place, const uint4& words) {
    *reinterpret_cast<uint4*>(place) = words;
  }
  // Odd rows take the other half first: eight lanes that store together then meet no bank twice.
  __device__ static int rope_side(int i, int lane) {
    return i ^ (lane / 4 & 1);
  }
  __device__ void store_rope(std::byte* swizzle_column) {
    const int row = lane_ / 4;
    const int chunk = lane_ % 4;
    if constexpr (kConfig.has_rope()) {
      if (stream_->rope_is_fp8) {
        const uint4& bytes = rope_[0];
        store_chunk(swizzle_column + chunk_offset(row, chunk * 2),
                    decode_vec8(bytes.x, bytes.y, scales_.x));
        store_chunk(swizzle_column + chunk_offset(row, chunk * 2 + 1),
                    decode_vec8(bytes.z, bytes.w, scales_.x));
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint4 words = rope_[i];
      if constexpr (kConfig.has_rope()) {
        if (stream_->rope_is_scaled) words = scale_vec8(words, scales_.x);
      }
      store_chunk(swizzle_column + chunk_offset(row, rope_side(i, lane_) * 4 + chunk), words);
    }
  }

  SparseShared<Variant>& shared_;
  int lane_;
  int warp_;
  PairWriter writer_;
  RowFinder finder_;
  TilePlace<Variant> at_;
  const GatherStream* stream_ = nullptr;
  const std::byte* next_ = nullptr;  // the row of the tile after the one in registers
  uint4 latent_[kCodedColumns];
  uint4 rope_[2];
  Scales scales_;
  bool has_scales_ = false;  // whole rows
  std::uint32_t mask_ = 0;   // rows of the warp that exist
};

}  // namespace quire::cuda::sm90::sparse_mla
