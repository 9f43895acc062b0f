// SPDX-License-Identifier: Apache-2.0
// A finished tile's rows on their way out through shared memory, 64 columns at a time: each warp its
// own 16 rows, so nobody waits for anybody. A quarter less instructions than turning them within quads
// (store_row()): at a tile's end, whose code runs once, each costs some 3.5 cycles.
#pragma once

#include "cuda/common/mma/matrix_store.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/prefill_attention/store_rows.cuh"
#include "cuda/common/thread/block_address.cuh"
#include "cuda/common/thread/opaque.cuh"

namespace quire::cuda {

template <PrefillConfig kConfig> class StagedRows {
 public:
  // `row`: the warp's first, in the tile. The lane is found anew for every tile: kept, it would be spilled.
  __device__ StagedRows(const PrefillParams& params, const PrefillTile& tile, int row)
      : lane_(opaque(static_cast<int>(threadIdx.x)) % 32) {
    const PrefillOutputs& outputs = params.outputs;
    const int heads_log2 = params.tile_heads_log2;
    std::byte* out = outputs.out +
                     (tile.first_row + tile.first_token) * outputs.token_stride_bytes +
                     (tile.head_tile << heads_log2) * outputs.head_stride_bytes;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const int at = row + kStepRows * k + lane_ / kChunks;
      const int token = at >> heads_log2;
      const int head = at & ((1 << heads_log2) - 1);
      is_stored_[k] = tile.first_token + token < tile.tokens;
      out_[k] = out + token * outputs.token_stride_bytes + head * outputs.head_stride_bytes +
                lane_ % kChunks * sizeof(uint4);
    }
  }

  // by[i]: for the thread's row i, lane / 4 + 8i of the warp.
  template <int kSums>
  __device__ void store(const float (&sums)[kSums], const float (&by)[2]) const {
    static_assert(kSums == kParts * kSwizzleColumnSums);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      put(sums, part * kSwizzleColumnSums, by);
      __syncwarp();
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const uint4 words = *reinterpret_cast<const uint4*>(
            stage() + place(kStepRows * k + lane_ / kChunks, lane_ % kChunks));
        if (is_stored_[k]) __stcs(reinterpret_cast<uint4*>(out_[k] + part * kRowBytes), words);
      }
      __syncwarp();
    }
  }

 private:
  static constexpr int kRows = 16;
  static constexpr int kChunks = kRowBytes / 16;  // of a row's 64 columns
  static constexpr int kStepRows = 32 / kChunks;  // that a warp stores at once
  static constexpr int kSteps = kRows / kStepRows;
  static constexpr int kParts = kConfig.value_dim / PrefillConfig::kSwizzleColumnWidth;
  static constexpr int kSwizzleColumnSums =
      PrefillConfig::kSwizzleColumnWidth / 2;  // a thread's, of two rows

  __device__ static int place(int row, int chunk) {
    return row * kRowBytes + (chunk ^ row % 8) * 16;
  }
  __device__ static std::byte* stage() {
    __shared__ alignas(128) std::byte stages[4 * kConfig.consumers][kRows * kRowBytes];
    return stages[threadIdx.x / 32 - 4];
  }

  template <int kSums>
  __device__ void put(const float (&sums)[kSums], int first, const float (&by)[2]) const {
    const int row = lane_ % kRows;
    const auto base =
        shared_address(stage()) + static_cast<std::uint32_t>(place(row, lane_ / kRows));
#pragma unroll
    for (int chunk = 0; chunk < kChunks; chunk += 2) {
      const float* at = &sums[first + 4 * chunk];
      const uint4 words = make_uint4(pack_pair<kConfig.dtype>(at[0] * by[0], at[1] * by[0]),
                                     pack_pair<kConfig.dtype>(at[2] * by[1], at[3] * by[1]),
                                     pack_pair<kConfig.dtype>(at[4] * by[0], at[5] * by[0]),
                                     pack_pair<kConfig.dtype>(at[6] * by[1], at[7] * by[1]));
      store_matrices(base ^ static_cast<std::uint32_t>(chunk * 16), words);
    }
  }

  const int lane_;
  std::byte* out_[kSteps];  // the lane's chunk of its rows
  bool is_stored_[kSteps];
};

// As store_rows(), of sums that V's scale is not in; references are in log2 units. `row`: the thread's first.
template <PrefillConfig kConfig, int kSums>
__device__ inline void store_staged(const PrefillParams& params, const PrefillTile& tile, int row,
                                    const RowSoftmax& softmax, const float (&sums)[kSums]) {
  const float as_they_are[2] = {1.0F, 1.0F};
  const QueryRow rows[2] = {query_row(params, tile, row), query_row(params, tile, row + 8)};
  const RowEnds ends(params, softmax, rows, as_they_are, kReferenceLog2<kConfig.product_dtype()>);
  const float scale = params.scales.of_values(tile.kv_head);
  const float by[2] = {ends.by[0] * scale, ends.by[1] * scale};
  StagedRows<kConfig>(params, tile, row - static_cast<int>(threadIdx.x % 32 / 4)).store(sums, by);
  if (params.outputs.lse != nullptr) store_lse(params.outputs, tile, rows, ends);
}

}  // namespace quire::cuda
