// SPDX-License-Identifier: Apache-2.0
// e4m3 rows: their bytes are copied into shared memory two tiles ahead, and decoded from there. No
// bytes wait in registers, so that the chains of conversions overlap; no two warps wait for each other.
#pragma once

#include "cuda/hopper/sparse_mla/copy_raw.cuh"
#include "cuda/hopper/sparse_mla/decode_rows.cuh"
#include "cuda/hopper/sparse_mla/row_fill.cuh"

namespace quire::cuda::hopper {

template <typename Variant> class RowFill<Variant, RowKind::fp8> {
 public:
  static constexpr int kFirstTurn = -4;

  __device__ RowFill(const SparseParams& params, SparseShared<Variant>& shared)
      : shared_(shared),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x % SparseConfig::kWarpgroup / 32)),
        finder_(params, kConfig.keys, warp_ * kRows + lane_ % kRows, lane_ / kRows == kScaleLanes) {
  }

  __device__ void turn(const SlotRange& range, int index) {
    if (index >= 0) {
      wait_copies<kAhead - 1>();
      __syncwarp();
      fill_tile(finder_.stream_of(range.first_tile + index), index % kAhead);
      __syncwarp();
    }
    found_ >>= kRows;
    const int next = index + kAhead;
    finder_.step(range, next);
    if (next >= 0 && next < range.num_tiles) {
      send_for(finder_.stream_of(range.first_tile + next), next % kAhead);
    }
    commit_copies();
  }

 private:
  static constexpr SparseConfig kConfig = Variant::kConfig;
  static constexpr int kRows = kConfig.warp_rows();
  static constexpr int kAhead = RawRows<kConfig.keys>::kStages;
  static constexpr int kScaleLanes = 1;  // the second kRows lanes send for scales
  static_assert(kRows == 8, "a warp's rows are one swizzle atom");

  __device__ static ScaleSource scale_source(const GatherStream& stream) {
    return stream.rows.row_format.parts[0].scale_source;
  }

  // The bytes of the rows that the finder has found.
  __device__ void send_for(const GatherStream& stream, int raw) {
    const std::byte* row = finder_.address(stream.rows);
    const std::uint32_t found = __ballot_sync(0xffffffff, row != nullptr) & ((1U << kRows) - 1);
    found_ |= found << (kAhead - 1) * kRows;
    auto* latent = shared_.raw.latent[raw][warp_ * kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const std::byte* source = row_of_lane(row, i);
      copy_piece(latent + i * SparseConfig::kLatent + (lane_ ^ (i % 2 * 4)) * 16,
                 source + lane_ * 16, source != nullptr);
    }
    // A row's rope is 8 pieces of bf16, or 4 of e4m3.
    const int pieces = stream.rope_is_fp8 ? 4 : 8;
    for (int first = 0; first < kRows; first += 32 / pieces) {
      const int line = first + lane_ / pieces;
      const std::byte* source = row_of_lane(row, line);
      copy_piece(shared_.raw.rope[raw][warp_ * kRows + line] + lane_ % pieces * 16,
                 source + stream.rope_offset_bytes + lane_ % pieces * 16, source != nullptr);
    }
    if (lane_ / kRows == kScaleLanes) send_for_scale(stream, raw);
  }
  __device__ void send_for_scale(const GatherStream& stream, int raw) {
    float4* target = &shared_.raw.scales[raw][warp_ * kRows + lane_ % kRows];
    if (scale_source(stream) == ScaleSource::plane) {
      const float* scale = finder_.plane_scale(stream.rows.scales);
      copy_word(target, scale, scale != nullptr);
    } else if (scale_source(stream) == ScaleSource::in_row) {
      const std::byte* row = finder_.address(stream.rows);
      copy_piece(target, row + stream.rows.row_format.parts[0].scale_offset_bytes, row != nullptr);
    }
  }

  __device__ void fill_tile(const GatherStream& stream, int raw) {
    shared_.left_ring.wait_empty(at_.half);
    fill_half<0>(stream, raw, shared_.left[at_.half.stage]);
    if (lane_ == 0) {
      shared_.masks.parts[at_.half.stage][warp_] = static_cast<std::uint8_t>(found_);
    }
    arrive(shared_.left_ring.full[at_.half.stage]);
    shared_.rope_ring.wait_empty(at_.rope);
    fill_rope(stream, raw, shared_.rope[at_.rope.stage] + warp_ * kRows * kRowBytes);
    arrive(shared_.rope_ring.full[at_.rope.stage]);
    shared_.right_ring.wait_empty(at_.half);
    fill_half<1>(stream, raw, shared_.right[at_.half.stage]);
    arrive(shared_.right_ring.full[at_.half.stage]);
    at_.advance();
  }
  // The tensor cores read next what this warp has written.
  __device__ void arrive(FullBarrier& full) const {
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    if (lane_ == 0) full.arrive();
  }

  // Two rows at a time. Eight lanes that store together have four pieces of one row and the same four
  // of the next: with the swizzle, no two in one bank.
  template <int kHalf>
  __device__ void fill_half(const GatherStream& stream, int raw, std::byte* slabs) const {
    const int line = lane_ / 4 % 2;
    const int piece = lane_ / 8 * 4 + lane_ % 4;  // 16 columns each
    const std::byte* source =
        shared_.raw.latent[raw][warp_ * kRows + line] + (kHalf * 16 + (piece ^ (line * 4))) * 16;
    const ScaleSource scaling = scale_source(stream);
    const float* scales =
        reinterpret_cast<const float*>(&shared_.raw.scales[raw][warp_ * kRows + line]) +
        (scaling == ScaleSource::in_row ? 2 * kHalf + piece / 8 : 0);
    std::byte* slab = slabs + piece / 4 * kConfig.slab_bytes() + warp_ * kRows * kRowBytes;
    uint4 bytes[kRows / 2];
    float scale[kRows / 2];
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      bytes[i] = *reinterpret_cast<const uint4*>(source + 2 * i * SparseConfig::kLatent);
      scale[i] = scaling == ScaleSource::none ? 1.0F : scales[2 * i * 4];
    }
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int row = 2 * i + line;
      store_piece(slab, row, piece % 4 * 2, decode_eight(bytes[i].x, bytes[i].y, scale[i]));
      store_piece(slab, row, piece % 4 * 2 + 1, decode_eight(bytes[i].z, bytes[i].w, scale[i]));
    }
  }

  __device__ void fill_rope(const GatherStream& stream, int raw, std::byte* slab) const {
    const int pieces = stream.rope_is_fp8 ? 4 : 8;
    const bool is_scaled = scale_source(stream) == ScaleSource::plane;
    for (int first = 0; first < kRows; first += 32 / pieces) {
      const int row = first + lane_ / pieces;
      const int piece = lane_ % pieces;
      const uint4 bytes =
          *reinterpret_cast<const uint4*>(shared_.raw.rope[raw][warp_ * kRows + row] + piece * 16);
      const float scale = is_scaled ? shared_.raw.scales[raw][warp_ * kRows + row].x : 1.0F;
      if (stream.rope_is_fp8) {
        store_piece(slab, row, piece * 2, decode_eight(bytes.x, bytes.y, scale));
        store_piece(slab, row, piece * 2 + 1, decode_eight(bytes.z, bytes.w, scale));
      } else {
        store_piece(slab, row, piece, stream.rope_is_scaled ? scale_eight(bytes, scale) : bytes);
      }
    }
  }

  __device__ static void store_piece(std::byte* slab, int row, int piece, const uint4& words) {
    *reinterpret_cast<uint4*>(slab + piece_offset(row, piece)) = words;
  }

  SparseShared<Variant>& shared_;
  int lane_;
  int warp_;
  RowFinder finder_;
  TilePlace<Variant> at_;
  std::uint32_t found_ =
      0;  // rows that exist: of the next tile to be filled, and of those after it
};

}  // namespace quire::cuda::hopper
