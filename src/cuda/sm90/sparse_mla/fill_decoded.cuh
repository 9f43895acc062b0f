// SPDX-License-Identifier: Apache-2.0
// e4m3 rows: their bytes are copied into shared memory a few tiles ahead, and decoded from there. No
// bytes wait in registers, so that the chains of conversions overlap; no two warps wait for each other.
#pragma once

#include "cuda/sm90/sparse_mla/row_fill.cuh"

namespace quire::cuda::sm90::sparse_mla {

template <typename Variant> class RowFill<Variant, RowKind::fp8, 1, RowShape::latent_rope> {
 public:
  static constexpr int kFirstTurn = -Variant::kConfig.raw_stages - 2;

  __device__ explicit RowFill(SparseShared<Variant>& shared)
      : shared_(shared),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup / 32)) {}

  // The second eight lanes find scales: in a tensor of their own, or in the row.
  __device__ void begin(const TileRun& run) {
    const GatherStream& stream = run.stream;
    const RowPart& part = stream.rows.row_format.parts[0];
    rope_offset_ = stream.rope_offset_bytes;
    rope_is_fp8_ = stream.rope_is_fp8;
    rope_is_scaled_ = stream.rope_is_scaled;
    scaling_ = part.scale_source;
    PagePlaces places = PagePlaces::of_rows(stream, run.sequence);
    if (lane_ / kRows == kScaleLanes && scaling_ == ScaleSource::plane) {
      places = PagePlaces::of_scales(stream, run.sequence);
    } else if (lane_ / kRows == kScaleLanes && scaling_ == ScaleSource::in_row) {
      places.data += part.scale_offset_bytes;
    }
    finder_.begin(run, places, kConfig.keys, warp_ * kRows + lane_ % kRows);
    wait_copies<0>();  // of zeros behind the last run's end: the new rows go to their places
    if (scaling_ == ScaleSource::none) write_ones();
  }

  template <typename Meanwhile> __device__ void turn(int index, const Meanwhile& meanwhile) {
    if (index >= 0) {
      wait_copies<kAhead - 1>();
      __syncwarp();
      fill_tile(meanwhile);
      __syncwarp();
    }
    found_ >>= kRows;
    const std::byte* row = finder_.step(kConfig.keys);
    if (index >= -kAhead) send_for(row);
    commit_copies();
    raw_.advance();
  }

 private:
  static constexpr SparseConfig kConfig = Variant::kConfig;
  static constexpr int kRows = kConfig.warp_rows();
  static constexpr int kAhead = kConfig.raw_stages;
  static constexpr int kScaleLanes = 1;  // the second kRows lanes send for scales
  static_assert(kRows == 8, "a warp's rows are one swizzle atom");
  static_assert(kAhead * kRows <= 32);

  // Rows without scales are multiplied by one: nobody has to ask.
  __device__ void write_ones() {
    __syncwarp();
    for (int i = lane_; i < kAhead * kRows; i += 32) {
      shared_.raw.scales[i / kRows][warp_ * kRows + i % kRows] = {1.0F, 1.0F, 1.0F, 1.0F};
    }
  }

  // The bytes of a tile's rows; past the last tile there are none, and nothing is read.
  __device__ void send_for(const std::byte* row) {
    const std::uint32_t found = __ballot_sync(0xffffffff, row != nullptr);
    found_ |= (found & ((1U << kRows) - 1)) << (kAhead - 1) * kRows;
    std::byte* latent = shared_.raw.latent[raw_.stage][warp_ * kRows] + lane_ * 16;
    std::byte* latent_odd = shared_.raw.latent[raw_.stage][warp_ * kRows] + (lane_ ^ 4) * 16;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      copy_chunk((i % 2 == 0 ? latent : latent_odd) + i * SparseConfig::kLatent,
                 row_of_lane(row, i) + lane_ * 16, (found >> i & 1) != 0);
    }
    send_for_rope(row, found);
    if (lane_ / kRows == kScaleLanes) send_for_scale(row);
  }
  // A row's rope is 8 chunks of bf16, or 4 of e4m3.
  __device__ void send_for_rope(const std::byte* row, std::uint32_t found) {
    auto* rope = shared_.raw.rope[raw_.stage] + warp_ * kRows;
    if (rope_is_fp8_) {
      const int own_row = lane_ / 4;
      copy_chunk(rope[own_row] + lane_ % 4 * 16,
                 row_of_lane(row, own_row) + rope_offset_ + lane_ % 4 * 16,
                 (found >> own_row & 1) != 0);
      return;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int own_row = 4 * i + lane_ / 8;
      copy_chunk(rope[own_row] + lane_ % 8 * 16,
                 row_of_lane(row, own_row) + rope_offset_ + lane_ % 8 * 16,
                 (found >> own_row & 1) != 0);
    }
  }
  __device__ void send_for_scale(const std::byte* scale) {
    float4* target = &shared_.raw.scales[raw_.stage][warp_ * kRows + lane_ % kRows];
    if (scaling_ == ScaleSource::plane) copy_word(target, scale, scale != nullptr);
    if (scaling_ == ScaleSource::in_row) copy_chunk(target, scale, scale != nullptr);
  }

  template <typename Meanwhile> __device__ void fill_tile(const Meanwhile& meanwhile) {
    shared_.left_ring.wait_empty(at_.half);
    fill_half<0>(shared_.left[at_.half.stage]);
    if (lane_ == 0) {
      shared_.masks.parts[at_.half.stage][warp_] = static_cast<std::uint8_t>(found_);
    }
    arrive(shared_.left_ring.full[at_.half.stage]);
    shared_.rope_ring.wait_empty(at_.rope);
    fill_rope(shared_.rope[at_.rope.stage] + warp_ * kRows * kRowBytes);
    arrive(shared_.rope_ring.full[at_.rope.stage]);
    meanwhile();
    shared_.right_ring.wait_empty(at_.half);
    fill_half<1>(shared_.right[at_.half.stage]);
    arrive(shared_.right_ring.full[at_.half.stage]);
    at_.advance();
  }
  // The tensor cores read next what this warp has written: those who wait for it fence. (Here a fence
  // would wait for all copies on their way.)
  __device__ void arrive(FullBarrier& full) const {
    __syncwarp();
    if (lane_ == 0) full.arrive();
  }

  // Two rows at a time. Eight lanes that store together have four chunks of one row and the same four
  // of the next: with the swizzle, no two in one bank.
  template <int kHalf> __device__ void fill_half(std::byte* swizzle_columns) const {
    const int own_row = lane_ / 4 % 2;
    const int chunk = lane_ / 8 * 4 + lane_ % 4;  // 16 columns each
    const std::byte* source = shared_.raw.latent[raw_.stage][warp_ * kRows + own_row] +
                              (kHalf * 16 + (chunk ^ (own_row * 4))) * 16;
    const float* scales =
        reinterpret_cast<const float*>(&shared_.raw.scales[raw_.stage][warp_ * kRows + own_row]) +
        (scaling_ == ScaleSource::in_row ? 2 * kHalf + chunk / 8 : 0);
    std::byte* swizzle_column =
        swizzle_columns + chunk / 4 * kConfig.swizzle_column_bytes() + warp_ * kRows * kRowBytes;
    uint4 bytes[kRows / 2];
    float scale[kRows / 2];
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      bytes[i] = *reinterpret_cast<const uint4*>(source + 2 * i * SparseConfig::kLatent);
      scale[i] = scales[2 * i * 4];
    }
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int row = 2 * i + own_row;
      store_chunk(swizzle_column, row, chunk % 4 * 2,
                  decode_vec8(bytes[i].x, bytes[i].y, scale[i]));
      store_chunk(swizzle_column, row, chunk % 4 * 2 + 1,
                  decode_vec8(bytes[i].z, bytes[i].w, scale[i]));
    }
  }

  __device__ void fill_rope(std::byte* swizzle_column) const {
    const auto* rope = shared_.raw.rope[raw_.stage] + warp_ * kRows;
    const float4* scales = shared_.raw.scales[raw_.stage] + warp_ * kRows;
    if (rope_is_fp8_) {
      const int row = lane_ / 4;
      const int chunk = lane_ % 4;
      const uint4 bytes = *reinterpret_cast<const uint4*>(rope[row] + chunk * 16);
      store_chunk(swizzle_column, row, chunk * 2, decode_vec8(bytes.x, bytes.y, scales[row].x));
      store_chunk(swizzle_column, row, chunk * 2 + 1, decode_vec8(bytes.z, bytes.w, scales[row].x));
      return;
    }
    const int row = lane_ / 8;
    const int chunk = lane_ % 8;
    uint4 low = *reinterpret_cast<const uint4*>(rope[row] + chunk * 16);
    uint4 high = *reinterpret_cast<const uint4*>(rope[row + 4] + chunk * 16);
    if (rope_is_scaled_) {
      low = scale_vec8(low, scales[row].x);
      high = scale_vec8(high, scales[row + 4].x);
    }
    store_chunk(swizzle_column, row, chunk, low);
    store_chunk(swizzle_column, row + 4, chunk, high);
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
  ScaleSource scaling_ = ScaleSource::none;
  int rope_offset_ = 0;
  bool rope_is_fp8_ = false;
  bool rope_is_scaled_ = false;
  // Rows that exist: of the next tile to be filled, and of those after it.
  std::uint32_t found_ = 0;
};

}  // namespace quire::cuda::sm90::sparse_mla
