// SPDX-License-Identifier: Apache-2.0
// A finished tile's rows on their way out through shared memory, 64 columns at a time: each warp its
// own 16 rows, so nobody waits for anybody. A quarter less instructions than transposing them within quads
// (store_row()): at a tile's end, whose code runs once, each costs some 3.5 cycles.
#pragma once

#include <cutlass/arch/barrier.h>

#include "cuda/common/mma/warp_mma.cuh"
#include "cuda/common/prefill_attention/query_rows.cuh"
#include "cuda/common/prefill_attention/shared.cuh"
#include "cuda/common/softmax/softmax.cuh"
#include "cuda/common/thread/thread.cuh"

namespace quire::cuda {

// A finished tile's rows, from registers: divided by their sums, transposed within quads of threads so
// that each stores 16 bytes at a time.

// What the thread's two rows are multiplied by in the end, and their LSE. The sink is a key without
// a value; it may stand far above every score.
struct RowEnds {
  float by[2];
  float offset[2];
  float sum[2];

  __device__ RowEnds(const PrefillParams& params, const RowSoftmax& softmax,
                     const QueryRow (&rows)[2], const float (&to_log2)[2], float headroom) {
    // The headroom leaves the sum, exactly: beside it in the offset it would cost the LSE's last bits.
    const float unit = exp2_approx(-headroom);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] = quad_sum(softmax.sum[i]) * unit;
      // A NaN score is in the sum, and in no maximum.
      const bool has_maximum = softmax.max[i] != -INFINITY;
      const bool has_keys = has_maximum || isnan(sum[i]);
      offset[i] = has_maximum ? softmax.max[i] * to_log2[i] : 0.0F;
      float weight = unit;
      const float sink = sink_of(params.scores, rows[i].head);
      if (sink != -INFINITY) {
        const float top = has_keys ? fmaxf(offset[i], sink) : sink;
        const float keep = exp2_approx(offset[i] - top);
        sum[i] = has_keys ? sum[i] * keep + exp2_approx(sink - top) : 1.0F;
        offset[i] = top;
        weight *= keep;
      }
      by[i] = has_keys ? weight * reciprocal(sum[i]) : 0.0F;
    }
  }
};

// By two threads of a quad, a row each.
__device__ inline void store_lse(const AttendOutput& outputs, const PrefillTile& tile,
                                 const QueryRow (&rows)[2], const RowEnds& ends) {
  const bool is_second = threadIdx.x % 2 != 0;
  const QueryRow row{.token = is_second ? rows[1].token : rows[0].token,
                     .head = is_second ? rows[1].head : rows[0].head,
                     .keys = {}};
  if (threadIdx.x % 4 < 2 && row.token < tile.tokens) {
    const std::int64_t token = tile.first_row + row.token;
    outputs.lse[token * outputs.lse_token_stride + row.head * outputs.lse_head_stride] =
        ((is_second ? ends.offset[1] : ends.offset[0]) +
         log2f(is_second ? ends.sum[1] : ends.sum[0])) *
        kLn2;
  }
}

// Word k of thread c goes to word c of thread k, within a quad.
__device__ inline void transpose_quad(std::uint32_t (&words)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool is_upper = (threadIdx.x & bit) != 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if ((k & bit) != 0) continue;
      std::uint32_t& low = words[k];
      std::uint32_t& high = words[k | bit];
      const std::uint32_t other = __shfl_xor_sync(0xffffffff, is_upper ? low : high, bit);
      (is_upper ? low : high) = other;
    }
  }
}

// Row i (0, 1) of the thread's two. `out`: the row, or null where it is not stored.
template <DType kDType, int kSums>
__device__ inline void store_row(const float (&sums)[kSums], int i, float by, std::byte* out) {
  constexpr int kChunks = kSums / 4;  // of a row, 8 numbers each
  const auto lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int first = 0; first < kChunks; first += 4) {
    std::uint32_t words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int j = 4 * (first + k < kChunks ? first + k : first) + 2 * i;
      words[k] = pack_pair<kDType>(sums[j] * by, sums[j + 1] * by);
    }
    transpose_quad(words);
    if (out != nullptr && first + lane < kChunks) {
      __stcs(reinterpret_cast<uint4*>(out) + first + lane,
             make_uint4(words[0], words[1], words[2], words[3]));
    }
  }
}

// `row`: the thread's first; the second stands 8 below it. The sums are of columns from `first_column` on.
template <PrefillConfig kConfig, int kSums>
__device__ inline void store_rows(const PrefillParams& params, const PrefillTile& tile, int row,
                                  const RowSoftmax& softmax, const float (&to_log2)[2],
                                  const float (&sums)[kSums], int first_column = 0) {
  const AttendOutput& outputs = params.outputs;
  const QueryRow rows[2] = {query_row(params, tile, row), query_row(params, tile, row + 8)};
  const RowEnds ends(params, softmax, rows, to_log2, kReferenceLog2<kConfig.product_dtype()>);
  if (outputs.lse != nullptr && first_column == 0) store_lse(outputs, tile, rows, ends);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    std::byte* out = outputs.out + (tile.first_row + rows[i].token) * outputs.token_bytes +
                     rows[i].head * outputs.head_bytes + first_column * 2;  // of 16 bits
    store_row<kConfig.dtype>(sums, i, ends.by[i], rows[i].token < tile.tokens ? out : nullptr);
  }
}

template <PrefillConfig kConfig> class StagedRows {
 public:
  // `row`: the warp's first, in the tile. The lane is found anew for every tile: kept, it would be spilled.
  __device__ StagedRows(const PrefillParams& params, const PrefillTile& tile, int row)
      : lane_(opaque(static_cast<int>(threadIdx.x)) % 32) {
    const AttendOutput& outputs = params.outputs;
    const int heads_log2 = params.tile_heads_log2;
    std::byte* out = outputs.out + (tile.first_row + tile.first_token) * outputs.token_bytes +
                     (tile.head_tile << heads_log2) * outputs.head_bytes;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const int at = row + kStepRows * k + lane_ / kChunks;
      const int token = at >> heads_log2;
      const int head = at & ((1 << heads_log2) - 1);
      is_stored_[k] = tile.first_token + token < tile.tokens;
      out_[k] = out + token * outputs.token_bytes + head * outputs.head_bytes +
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

// A tile that was cut along its keys (tail_cuts.h): every warpgroup keeps the sums of its rows'
// splits in memory, as its registers hold them, and the one whose split comes last puts them
// together, in the order of keys, whoever that is.

// Rows whose keys come in chunks: a chunk takes over what the ones before it left, in fp32, and
// stores the finished rows or leaves them to the next.

// Maxima in log2 units, without the headroom, which all chunks have alike; the first thread of a
// quad holds a row's whole sum, the others none of it, unless it is NaN.
__device__ inline RowSoftmax whole_rows(const RowSoftmax& softmax, const float (&to_log2)[2]) {
  RowSoftmax whole;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sum = quad_sum(softmax.sum[i]);
    whole.sum[i] = threadIdx.x % 4 == 0 || isnan(sum) ? sum : 0.0F;
    whole.max[i] = softmax.max[i] == -INFINITY ? -INFINITY : softmax.max[i] * to_log2[i];
  }
  return whole;
}

// What is kept of one row. A thread's columns are pairs 8 apart.
struct KeptRow {
  float2* row;   // maximum, sum
  float2* sums;  // the thread's first pair

  __device__ KeptRow(const ChainedRows& chain, std::int64_t index, int value_dim)
      : row(reinterpret_cast<float2*>(chain.rows) + index),
        sums(reinterpret_cast<float2*>(chain.sums + index * value_dim) + threadIdx.x % 4) {}

  // Row i of the thread's two goes on from here.
  template <int kSums>
  __device__ void add_to(RowSoftmax& softmax, float (&total)[kSums], int i) const {
    const float2 kept = *row;
    const float now = fmaxf(softmax.max[i], kept.x);
    const float from = now == -INFINITY ? 0.0F : now;
    const float by = exp2_approx(softmax.max[i] - from);
    const float by_kept = exp2_approx(kept.x - from);
    softmax.max[i] = now;
    softmax.sum[i] = softmax.sum[i] * by + (threadIdx.x % 4 == 0 ? kept.y * by_kept : 0.0F);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      const float2 pair = sums[4 * j];
      total[4 * j + 2 * i] = total[4 * j + 2 * i] * by + pair.x * by_kept;
      total[4 * j + 2 * i + 1] = total[4 * j + 2 * i + 1] * by + pair.y * by_kept;
    }
  }

  template <int kSums>
  __device__ void keep(const RowSoftmax& softmax, const float (&total)[kSums], int i) const {
    if (threadIdx.x % 4 == 0) *row = make_float2(softmax.max[i], softmax.sum[i]);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      sums[4 * j] = make_float2(total[4 * j + 2 * i], total[4 * j + 2 * i + 1]);
    }
  }
};

// As store_rows(), which ends the chain.
template <PrefillConfig kConfig, int kSums>
__device__ inline void chain_rows(const PrefillParams& params, std::uint32_t links,
                                  const PrefillTile& tile, int row, const RowSoftmax& softmax,
                                  const float (&to_log2)[2], float (&sums)[kSums]) {
  const bool continues = (links & ChainedRows::kContinues) != 0;
  const bool finishes = (links & ChainedRows::kFinishes) != 0;
  const std::int64_t heads = std::int64_t{params.head_tiles} << params.tile_heads_log2;
  RowSoftmax whole = whole_rows(softmax, to_log2);
  std::int64_t index[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const QueryRow at = query_row(params, tile, row + 8 * i);
    // A chunk in the middle that a row sees nothing of leaves it as it is. NaN scores have no maximum.
    const bool sees_nothing = whole.max[i] == -INFINITY && !isnan(whole.sum[i]);
    const bool is_left = continues && !finishes && sees_nothing;
    const bool is_taken = at.token < tile.tokens && !is_left;
    index[i] = is_taken ? (tile.first_row + at.token) * heads + at.head : -1;
    if (is_taken && continues) KeptRow(params.chain, index[i], 2 * kSums).add_to(whole, sums, i);
  }
  if (finishes) {
    store_staged<kConfig>(params, tile, row, whole, sums);
    return;
  }
  __syncwarp();  // all of a quad have read what its first thread replaces
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (index[i] >= 0) KeptRow(params.chain, index[i], 2 * kSums).keep(whole, sums, i);
  }
}

template <PrefillConfig kConfig> class SplitStore {
 public:
  static constexpr int kSums = kConfig.value_dim / 2;  // of a thread
  static constexpr int kThreads = 128;

  __device__ SplitStore(const TailSplits& tail, const TileSplits& splits, int consumer)
      : tail_(tail), splits_(splits), consumer_(consumer) {}

  // Maxima in log2 units; a row's sum in the first thread of its quad, 0 in the others.
  __device__ void keep(const RowSoftmax& softmax, const float (&sums)[kSums]) const {
    const int place = place_of(splits_.slot);
    tail_.rows[place * kThreads + thread()] =
        make_float4(softmax.max[0], softmax.max[1], softmax.sum[0], softmax.sum[1]);
    float4* kept = sums_at(place);
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      kept[j * kThreads] =
          make_float4(sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]);
    }
  }

  // Whether all splits of the tile are there. `answer`: in shared memory, for all threads.
  __device__ bool is_last(bool& answer, std::uint32_t barrier) const {
    __threadfence();
    cutlass::arch::NamedBarrier::sync(kThreads, barrier);
    if (thread() == 0) {
      answer = atomicAdd(tail_.arrivals + place_of(splits_.first_slot), 1) == splits_.count - 1;
      __threadfence();
    }
    cutlass::arch::NamedBarrier::sync(kThreads, barrier);
    return answer;
  }

  __device__ RowSoftmax join(float (&sums)[kSums]) const {
    RowSoftmax joined;
#pragma unroll 1
    for (int split = 0; split < splits_.count; ++split) {
      const float4 kept = rows_of(split);
      joined.max[0] = fmaxf(joined.max[0], kept.x);
      joined.max[1] = fmaxf(joined.max[1], kept.y);
    }
#pragma unroll
    for (float& sum : sums) sum = 0.0F;
#pragma unroll 1
    for (int split = 0; split < splits_.count; ++split) {
      const float4 kept = rows_of(split);
      const float by[2] = {rebased(kept.x, joined.max[0]), rebased(kept.y, joined.max[1])};
      joined.sum[0] += kept.z * by[0];
      joined.sum[1] += kept.w * by[1];
      add(sums_at(place_of(splits_.slot_of(split))), by, sums);
    }
    return joined;
  }

 private:
  __device__ static int thread() {
    return static_cast<int>(threadIdx.x % kThreads);
  }
  __device__ int place_of(int slot) const {
    return slot * kConfig.consumers + consumer_;
  }
  __device__ float4* sums_at(int place) const {
    return reinterpret_cast<float4*>(tail_.sums) + std::int64_t{place} * (kThreads * kSums / 4) +
           thread();
  }
  __device__ float4 rows_of(int split) const {
    return __ldcg(tail_.rows + place_of(splits_.slot_of(split)) * kThreads + thread());
  }
  __device__ static void add(const float4* kept, const float (&by)[2], float (&sums)[kSums]) {
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      const float4 four = __ldcg(kept + j * kThreads);
      sums[4 * j] += four.x * by[0];
      sums[4 * j + 1] += four.y * by[0];
      sums[4 * j + 2] += four.z * by[1];
      sums[4 * j + 3] += four.w * by[1];
    }
  }

  const TailSplits& tail_;
  const TileSplits& splits_;
  const int consumer_;
};

}  // namespace quire::cuda
