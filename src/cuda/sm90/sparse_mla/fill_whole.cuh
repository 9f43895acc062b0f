// SPDX-License-Identifier: Apache-2.0
// Whole rows of 448 e4m3 and 64 bf16 columns, 576 bytes, with an e8m0 scale for every 64 of the former. As in
// fill_decoded.cuh their bytes are copied into shared memory a few tiles ahead and decoded from there, each warp its own
// rows. A power of two needs no multiplication in fp32: codes become bf16 and are scaled two at a time, exactly.
#pragma once

#include "cuda/sm90/sparse_mla/row_fill.cuh"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant> class RowFill<Variant, RowKind::fp8, 1, RowShape::whole> {
 public:
  static constexpr int kFirstTurn = -Variant::kConfig.raw_stages - 2;

  __device__ explicit RowFill(SparseShared<Variant>& shared)
      : shared_(shared),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup / 32)) {}

  // The second eight lanes find scales.
  __device__ void begin(const TileRun& run) {
    stream_ = &run.stream;
    const PagePlaces places = finds_scale() ? PagePlaces::of_scales<1>(run.stream, run.sequence)
                                            : PagePlaces::of_rows(run.stream, run.sequence);
    finder_.begin(run, places, kConfig.keys, warp_ * kRows + lane_ % kRows);
    wait_copies<0>();  // of zeros behind the last run's end: the new rows go to their places
  }

  template <typename Meanwhile> __device__ void turn(int index, const Meanwhile& meanwhile) {
    if (index >= 0) {
      wait_copies<kAhead - 1>();
      __syncwarp();
      convert_scales();
      __syncwarp();
      fill_tile(meanwhile);
      __syncwarp();
    }
    found_ >>= kRows;
    scaled_ >>= kRows;
    const std::byte* place = finder_.step(kConfig.keys);
    if (index >= -kAhead) send_for(place);
    commit_copies();
    raw_.advance();
  }

 private:
  static constexpr SparseConfig kConfig = Variant::kConfig;
  static constexpr int kRows = kConfig.warp_rows();
  static constexpr int kAhead = kConfig.raw_stages;
  static constexpr int kScaleLanes = 1;  // the second kRows lanes send for scales
  static constexpr int kPowers = 7;      // scales of a row
  static constexpr std::uint32_t kRowBits = (1U << kRows) - 1;
  static_assert(kRows == 8, "a warp's rows are one swizzle atom");
  static_assert(kAhead * kRows <= 32);

  __device__ bool finds_scale() const { return lane_ / kRows == kScaleLanes; }

  // The bytes of a tile's rows; past the last tile there are none, and nothing is read.
  __device__ void send_for(const std::byte* place) {
    const std::uint32_t votes = __ballot_sync(0xffffffff, place != nullptr);
    const std::uint32_t found = votes & kRowBits;
    found_ |= found << (kAhead - 1) * kRows;
    scaled_ |= (votes >> kScaleLanes * kRows & kRowBits) << (kAhead - 1) * kRows;
    std::byte* latent = shared_.raw.latent[raw_.stage][warp_ * kRows] + lane_ * 16;
    std::byte* latent_odd = shared_.raw.latent[raw_.stage][warp_ * kRows] + (lane_ ^ 4) * 16;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      copy_chunk((i % 2 == 0 ? latent : latent_odd) + i * SparseConfig::kLatent,
                 row_of_lane(place, i) + lane_ * 16, (found >> i & 1) != 0);
    }
    const int own_row = lane_ / 4;
    copy_chunk(shared_.raw.tail[raw_.stage][warp_ * kRows + own_row] + lane_ % 4 * 16,
               row_of_lane(place, own_row) + SparseConfig::kLatent + lane_ % 4 * 16,
               (found >> own_row & 1) != 0);
    if (finds_scale()) send_for_scales(place);
  }
  __device__ void send_for_scales(const std::byte* scales) {
    std::uint8_t* target = shared_.raw.powers[raw_.stage][warp_ * kRows + lane_ % kRows];
    if (stream_->powers_are_words) return copy_word<8>(target, scales, scales != nullptr);
    // Scales anywhere: correct, and no more.
    const std::int64_t stride = stream_->rows.scales.slot_stride;
    for (int i = 0; i < kPowers && scales != nullptr; ++i) {
      target[i] = __ldg(reinterpret_cast<const std::uint8_t*>(scales + i * stride));
    }
  }

  // Two of each lane; a row whose scales have no page is zeros.
  __device__ void convert_scales() {
    const int row = lane_ / 4;
    const int first = lane_ % 4 * 2;
    const std::uint32_t codes = *reinterpret_cast<const std::uint16_t*>(
        &shared_.raw.powers[raw_.stage][warp_ * kRows + row][first]);
    uint2 scales = {bf16_pair_of_e8m0(codes & 0xff), bf16_pair_of_e8m0(codes >> 8)};
    if ((scaled_ >> row & 1) == 0) scales = {};
    *reinterpret_cast<uint2*>(&shared_.raw.scales[warp_ * kRows + row][first]) = scales;
  }

  template <typename Meanwhile> __device__ void fill_tile(const Meanwhile& meanwhile) {
    shared_.left_ring.wait_empty(at_.half);
    fill_half<0>(shared_.left[at_.half.stage]);
    if (lane_ == 0) {
      shared_.masks.parts[at_.half.stage][warp_] = static_cast<std::uint8_t>(found_);
    }
    arrive(shared_.left_ring.full[at_.half.stage]);
    meanwhile();
    shared_.right_ring.wait_empty(at_.half);
    fill_half<1>(shared_.right[at_.half.stage]);
    arrive(shared_.right_ring.full[at_.half.stage]);
    at_.advance();
  }
  // As in fill_decoded.cuh: those who wait for it fence.
  __device__ void arrive(FullBarrier& full) const {
    __syncwarp();
    if (lane_ == 0) full.arrive();
  }

  // Two rows at a time. Eight lanes that store together have four chunks of one row and the same four of the next: with
  // the swizzle, no two in one bank. The last eight lanes of the right half have the bf16 columns.
  template <int kHalf> __device__ void fill_half(std::byte* swizzle_columns) const {
    const int own_row = lane_ / 4 % 2;
    std::byte* swizzle_column =
        swizzle_columns + lane_ / 8 * kConfig.swizzle_column_bytes() + warp_ * kRows * kRowBytes;
    if (kHalf == 1 && lane_ / 8 == 3) return copy_tail(swizzle_column, own_row);
    const int chunk = lane_ / 8 * 4 + lane_ % 4;  // 16 columns each
    const std::byte* source = shared_.raw.latent[raw_.stage][warp_ * kRows + own_row] +
                              (kHalf * 16 + (chunk ^ (own_row * 4))) * 16;
    const std::uint32_t* scales =
        &shared_.raw.scales[warp_ * kRows + own_row][kHalf * 4 + lane_ / 8];
    uint4 bytes[kRows / 2];
    std::uint32_t scale[kRows / 2];
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      bytes[i] = *reinterpret_cast<const uint4*>(source + 2 * i * SparseConfig::kLatent);
      scale[i] = scales[2 * i * (kPowers + 1)];
    }
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int row = 2 * i + own_row;
      store_chunk(swizzle_column, row, chunk % 4 * 2,
                  decode_vec8_by_power(bytes[i].x, bytes[i].y, scale[i]));
      store_chunk(swizzle_column, row, chunk % 4 * 2 + 1,
                  decode_vec8_by_power(bytes[i].z, bytes[i].w, scale[i]));
    }
  }

  // 128 bytes of each row from byte 448 on: the first four chunks stand with the codes, the others behind them.
  __device__ void copy_tail(std::byte* swizzle_column, int own_row) const {
    const int first = lane_ % 4 * 2;  // chunk of 16 bytes
    const auto& latent = shared_.raw.latent[raw_.stage];
    const auto& tail = shared_.raw.tail[raw_.stage];
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int row = 2 * i + own_row;
      const std::byte* source =
          first < 4 ? latent[warp_ * kRows + row] + ((28 + first) ^ own_row * 4) * 16
                    : tail[warp_ * kRows + row] + (first - 4) * 16;
      const uint4 low = *reinterpret_cast<const uint4*>(source);
      const uint4 high = *reinterpret_cast<const uint4*>(source + 16);
      store_chunk(swizzle_column, row, first, low);
      store_chunk(swizzle_column, row, first + 1, high);
    }
  }

  __device__ static void store_chunk(std::byte* swizzle_column, int row, int chunk,
                                     const uint4& words) {
    *reinterpret_cast<uint4*>(swizzle_column + chunk_offset(row, chunk)) = words;
  }

  SparseShared<Variant>& shared_;
  int lane_;
  int warp_;
  RowFinder finder_;
  TilePlace<Variant> at_;
  RingPosition<kAhead> raw_;
  const GatherStream* stream_ = nullptr;
  // Rows that exist, and those whose scales do: of the next tile to be filled, and of those after it.
  std::uint32_t found_ = 0;
  std::uint32_t scaled_ = 0;
};

}  // namespace quire::cuda::sm90::sparse_mla
