// SPDX-License-Identifier: Apache-2.0
// A tile that has columns of K or V, whose rows are codes with scales. Columns that share a scale lie in one quad's
// registers, group of 32 after group, or in those of the same quad of the neighbouring block: their largest
// magnitude takes two shuffles. Stored at once; tiles of Q alone wait as any other (deferred_store.cuh).
#pragma once

#include "cuda/common/matmul/deferred_store.cuh"
#include "cuda/common/matmul/finish.cuh"
#include "cuda/common/matmul/roles/multiply.cuh"
#include "cuda/common/mma/row_order.h"
#include "cuda/common/rows/number.cuh"
#include "cuda/common/rows/quotient.cuh"

namespace quire::cuda {

// Which head's row a group of 32 columns of K or V belongs to.
struct CodeCursor {
  bool is_value;
  int head;
  int depth;  // of the group's first column in the row

  __device__ CodeCursor(const QkvOutputs& outputs, int column) {
    const int within = max(column - outputs.q_dim, 0);
    is_value = within >= outputs.kv_dim;
    const int of_side = is_value ? within - outputs.kv_dim : within;
    head = of_side / outputs.head_dim;
    depth = of_side - head * outputs.head_dim;
  }
  __device__ void advance(const QkvOutputs& outputs) {
    depth += kGroupRows;
    if (depth < outputs.head_dim) return;
    depth = 0;
    if (++head < outputs.keys.num_heads) return;
    head = 0;
    is_value = true;
  }
  // From a token's K row of head 0.
  __device__ std::int64_t row_bytes(const QkvOutputs& outputs) const {
    return head * outputs.keys.head_stride_bytes + (is_value ? outputs.value_offset_bytes : 0);
  }
  // Likewise, or from the token's first scale in the plane.
  __device__ std::int64_t scale_bytes(const KvCodes& codes) const {
    return codes.scale_offset_bytes + head * codes.scale_head_bytes +
           (is_value ? codes.scale_value_bytes : 0) +
           depth / codes.granule * codes.scale_granule_bytes;
  }
};

// A thread's two tokens.
struct CodePlaces {
  std::byte* q[2];       // null where nothing is stored
  std::byte* rows[2];    // of K, head 0; likewise
  std::byte* scales[2];  // likewise
};

// A thread's 8 columns of a group of 32, for both tokens, and their scales. By a chain of questions, since registers have
// no index.
template <int kGroup = 0, int kGroups>
__device__ inline void take_group(const float (&sums)[16 * kGroups],
                                  const float (&all_scales)[kGroups][2], int group,
                                  float (&runs)[2][8], float (&scales)[2]) {
  if constexpr (kGroup + 1 < kGroups) {
    if (group != kGroup) {
      return take_group<kGroup + 1, kGroups>(sums, all_scales, group, runs, scales);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    scales[half] = all_scales[kGroup][half];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      runs[half][i] = sums[16 * kGroup + 4 * (i / 2) + 2 * half + i % 2];
    }
  }
}

__device__ inline uint2 encode(DType dtype, const float (&values)[8]) {
  if (dtype == DType::i8) return encode_i8(values);
  const uint2 e4m3 = encode_fp8<__NV_E4M3>(values);
  const uint2 e5m2 = encode_fp8<__NV_E5M2>(values);
  return dtype == DType::fp8_e5m2 ? e5m2 : e4m3;
}

// Sums are finished twice, for their largest and for their codes: finished ones would have no room beside them.
template <typename Finish, int kRegisters> class QuantizedKvEpilogue {
 public:
  static constexpr int kGroups = kRegisters / 16;

  __device__ QuantizedKvEpilogue(const TileParams& params, int column, const Finish& finish,
                                 const float (&sums)[kRegisters])
      : params_(params), column_(column), finish_(finish), sums_(sums) {}

  // `exchange(largest)`: of the groups at the tile's edge, with what the neighbouring tile has of their granule.
  template <typename Exchange>
  __device__ void store(const CodePlaces& places, const Exchange& exchange) {
    find_largest();
    merge_groups();
    if (exchange(scales_[0], scales_[kGroups - 1])) merge_groups();
    find_scales(places);
    const QkvOutputs& outputs = params_.outputs;
    const CodeCursor first(outputs, column_);
    const bool is_plain = column_ >= outputs.q_dim && column_of(kGroups) <= outputs.columns &&
                          params_.codes.coded_columns == outputs.head_dim &&
                          outputs.kv_dtype == DType::fp8_e4m3 && !is_rare_;
    if (is_plain) {
      store_plain(places, first);
    } else {
      store_any(places, first);
    }
  }

 private:
  __device__ int column_of(int group) const { return column_ + kGroupRows * group; }
  __device__ static int quad() { return 8 * static_cast<int>(threadIdx.x % 4); }
  __device__ bool begins_granule(int group) const {
    return column_of(group) % params_.codes.granule == 0;
  }

  // Of every group of 32 columns.
  __device__ void find_largest() {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const typename Finish::Columns columns = finish_.of_columns(kGroupRows * group + quad());
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float run[8];
        take_run(finish_, columns, sums_, group, half, run);
        float amax = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) amax = fmaxf(amax, fabsf(run[i]));
        amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
        scales_[group][half] = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 2));
      }
    }
  }

  // Every group gets the largest of its granule, as far as that lies in the tile.
  __device__ void merge_groups() {
#pragma unroll
    for (int group = 1; group < kGroups; ++group) {
      if (!begins_granule(group)) merge(group, group - 1);
    }
#pragma unroll
    for (int group = kGroups - 2; group >= 0; --group) {
      if (!begins_granule(group + 1)) merge(group, group + 1);
    }
  }
  __device__ void merge(int group, int other) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scales_[group][half] = fmaxf(scales_[group][half], scales_[other][half]);
    }
  }

  // From the largest magnitudes to amax / max_finite, or the user's.
  __device__ void find_scales(const CodePlaces& places) {
    CodeCursor cursor(params_.outputs, column_);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const bool is_kv = column_of(group) >= params_.outputs.q_dim;
      const bool is_coded = is_kv && column_of(group) < params_.outputs.columns &&
                            cursor.depth < params_.codes.coded_columns;
      if (is_coded && (group == 0 || begins_granule(group))) {
        find_scales_of(group, cursor.scale_bytes(params_.codes), places);
      } else if (is_coded) {
        scales_[group][0] = scales_[group - 1][0];
        scales_[group][1] = scales_[group - 1][1];
      }
      if (is_kv) cursor.advance(params_.outputs);
    }
  }
  __device__ void find_scales_of(int group, std::int64_t offset, const CodePlaces& places) {
    const bool is_writer = begins_granule(group) && threadIdx.x % 4 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float largest = scales_[group][half];
      auto* at = reinterpret_cast<float*>(places.scales[half] + offset);
      const bool has_place = places.scales[half] != nullptr;
      float scale = 0.0f;
      if (params_.codes.scales_are_static) {
        if (has_place) scale = __ldg(at);
      } else {
        scale = __fdiv_rn(largest, max_finite_of(params_.outputs.kv_dtype));
        if (has_place && is_writer) *at = scale;
      }
      is_rare_ = is_rare_ || SumQuotient::is_rare(scale, largest);
      scales_[group][half] = scale;
    }
  }

  // e4m3 codes and nothing else.
  __device__ void store_plain(const CodePlaces& places, CodeCursor cursor) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const typename Finish::Columns columns = finish_.of_columns(kGroupRows * group + quad());
      const std::int64_t offset = cursor.row_bytes(params_.outputs) +
                                  params_.codes.codes_offset_bytes + cursor.depth + quad();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float run[8];
        take_run(finish_, columns, sums_, group, half, run);
        SumQuotient::divide(run, scales_[group][half]);
        if (places.rows[half] != nullptr) {
          store_global(places.rows[half] + offset, encode_fp8<__NV_E4M3>(run));
        }
      }
      cursor.advance(params_.outputs);
    }
  }

  // Whatever stands in the tile. A loop: unrolled, this is more than all the rest of a kernel.
  __device__ void store_any(const CodePlaces& places, CodeCursor cursor) const {
    const QkvOutputs& outputs = params_.outputs;
#pragma unroll 1
    for (int group = 0; group < kGroups && column_of(group) < outputs.columns; ++group) {
      const bool is_kv = column_of(group) >= outputs.q_dim;
      store_group(group, is_kv, cursor, places);
      if (is_kv) cursor.advance(outputs);
    }
  }

  __device__ void store_group(int group, bool is_kv, const CodeCursor& cursor,
                              const CodePlaces& places) const {
    const QkvOutputs& outputs = params_.outputs;
    const KvCodes& codes = params_.codes;
    const bool is_coded = is_kv && cursor.depth < codes.coded_columns;
    const DType dtype = !is_kv ? outputs.q_dtype : is_coded ? outputs.kv_dtype : codes.rest_dtype;
    const int depth = !is_kv     ? column_of(group)
                      : is_coded ? cursor.depth
                                 : cursor.depth - codes.coded_columns;
    const int part = is_coded ? codes.codes_offset_bytes : codes.rest_offset_bytes;
    const std::int64_t offset =
        (is_kv ? cursor.row_bytes(outputs) + part : 0) + (depth + quad()) * (bits(dtype) / 8);
    float runs[2][8];
    float scales[2];
    take_group<0, kGroups>(sums_, scales_, group, runs, scales);
    const typename Finish::Columns columns = finish_.of_columns(kGroupRows * group + quad());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      finish_.finish(runs[half], columns, half);
      std::byte* row = is_kv ? places.rows[half] : places.q[half];
      if (row == nullptr) continue;
      if (is_coded) {
        SumQuotient::divide_any(runs[half], scales[half]);
        store_global(row + offset, encode(dtype, runs[half]));
      } else {
        store_run(row + offset, dtype, runs[half]);
      }
    }
  }

  const TileParams& params_;
  int column_;  // first of the tile
  const Finish& finish_;
  const float (&sums_)[kRegisters];
  float scales_[kGroups][2];  // of a group's granule: its largest magnitude until find_scales()
  bool is_rare_ = false;
};

// What the tile kernels do with a tile that has columns of K or V, where those become codes with scales.

// Where a thread's two tokens go, in a tile that has columns of K or V.
template <TileConfig kConfig>
__device__ CodePlaces code_places(const TileParams& params, const TileShared<kConfig>& shared,
                                  int kv_stage, int first_row) {
  const QkvOutputs& outputs = params.outputs;
  const TileRoute& tile = shared.routes[kv_stage];
  CodePlaces places{};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + 8 * half;
    const int token = tile.token + row;
    if (token < tile.first_token || token >= tile.end_token) continue;
    places.q[half] = outputs.q + token * outputs.q_stride_bytes;
    const std::int64_t kv = shared.places[kv_stage].offsets[0][row];
    const std::int64_t scale = shared.places[kv_stage].offsets[1][row];
    if (kv < 0) continue;
    places.rows[half] = outputs.keys.data + kv;
    if (params.codes.scales_are_in_row) {
      places.scales[half] = places.rows[half];
    } else if (scale >= 0) {
      places.scales[half] = outputs.keys.scales.data + scale;
    }
  }
  return places;
}

// With the block beside this one, where a granule of K or V lies in both tiles. `left` and `right` are those of the
// tile's first and last group.
template <TileConfig kConfig>
__device__ bool exchange_largest(const TileParams& params, TileShared<kConfig>& shared,
                                 Walk<kConfig>& walk, int column, float (&left)[2],
                                 float (&right)[2]) {
  const bool is_right = rank_in_cluster<kConfig.cluster>() % 2 == 1;
  const int border = is_right ? column : column + kConfig.tile_n;
  const int first = border - border % params.codes.granule;
  if (first == border || first < params.outputs.q_dim || first >= params.outputs.columns) {
    return false;
  }
  float largest[2] = {is_right ? left[0] : right[0], is_right ? left[1] : right[1]};
  shared.pair.exchange(walk.consumer, walk.row, walk.exchanges++, largest);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    left[half] = is_right ? largest[half] : left[half];
    right[half] = is_right ? right[half] : largest[half];
  }
  return true;
}

template <TileConfig kConfig, int kRegisters>
__device__ void store_codes(const TileParams& params, TileShared<kConfig>& shared,
                            Walk<kConfig>& walk, const float (&sums)[kRegisters]) {
  const int kv_stage = walk.kv_at.stage;
  const int column = shared.routes[kv_stage].column;
  const auto finish = finishing<kConfig>(shared, kv_stage, walk.row);
  QuantizedKvEpilogue tile(params, column, finish, sums);
  tile.store(code_places(params, shared, kv_stage, walk.row),
             [&](float(&left)[2], float(&right)[2]) {
               if constexpr (!kConfig.pairs_granules())
                 return false;
               else
                 return exchange_largest(params, shared, walk, column, left, right);
             });
}

}  // namespace quire::cuda
