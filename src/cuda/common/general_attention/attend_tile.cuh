// SPDX-License-Identifier: Apache-2.0
// One block attends a tile of query rows to a list of keys: fp32 from the first product to the last,
// online softmax, nothing assumed about widths, formats or masks. The floor under the fast kernels.
//
//   for each tile of 64 keys          in slot order, tiles begin at multiples of 64
//     scores   = Q · Kᵀ               64 columns at a time through shared memory
//     weights  = exp(scores - max)    a warp owns kRows / 8 rows, their maximum and their sum
//     out     += weights · V          128 columns at a time
//
// Both products sum a few terms for themselves before they join the rest: rounding errors grow with
// these parts, not with the terms, and stay below those of a sum term by term.
//
// A row's result depends on its own keys and the tile borders alone, never on kRows or on the other
// rows of the tile: tiles that it does not see change no bit of its state.
//
// `Source` says what the rows and the keys are:
//   num_rows(), key_width(), value_width()        of the tile
//   slots() -> KeySpan                             outside of it no row sees a key
//   classify(KeySpan) -> TileStatus, begin_tile(slot)
//   locate(slot) -> KeyPlace                       of one key; absent where there is none
//   load_query/load_key/load_value(.., column, float (&)[8])
//   row(r) -> Row;  shows(Row, slot) -> bool;  score(Row, slot, raw) -> float
#pragma once

#include "cuda/common/mask/mask_program.cuh"
#include "cuda/common/paging/row_reader.cuh"
#include "cuda/common/softmax/score.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda {

// `distance` = key - query.
__device__ inline float modify_score(const ScoreParams& params, float slope, float raw,
                                     std::int64_t distance) {
  float score = raw * params.scale;
  if (params.softcap > 0.0f) score = params.softcap * tanhf(score / params.softcap);
  if (params.alibi_slopes != nullptr) score += slope * static_cast<float>(distance);
  return score;
}

// Shapes and shared memory of attend_tile.cuh, and the few steps that need nothing else.

template <int kTileRows, int kValueVectors> struct AttendConfig {
  static constexpr int kRows = kTileRows;         // 8 or 32
  static constexpr int kVectors = kValueVectors;  // of 128 value columns each
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kWarpRows = kRows / kWarps;
  static constexpr int kKeys = 64;
  static constexpr int kChunk = 64;          // columns of a product's step
  static constexpr int kValueColumns = 128;  // of a vector: four a lane
  static constexpr int kSumColumns = 32;     // that a score takes in at once
  static constexpr int kSumKeys = 16;        // that an output takes in at once
  // Scores of a thread: kThreadRows × kThreadKeys.
  static constexpr int kThreadKeys = kRows == 8 ? 2 : 4;
  static constexpr int kKeyGroups = kKeys / kThreadKeys;
  static constexpr int kRowGroups = kThreads / kKeyGroups;
  static constexpr int kThreadRows = kRows / kRowGroups;
  static constexpr int kPad = 4;  // rows begin 4 banks apart: 8 lanes of a quarter-warp never meet
};

struct KeyPlace {
  RowPlace key{};
  RowPlace value{};

  __device__ bool exists() const { return key.exists(); }
};

template <typename Config> struct AttendShared {
  struct Products {
    float keys[Config::kKeys][Config::kChunk + Config::kPad];
    float queries[Config::kRows][Config::kChunk + Config::kPad];
  };
  union {
    Products products;
    float values[Config::kKeys][Config::kValueColumns];
  };
  float weights[Config::kRows][Config::kKeys + Config::kPad];  // scores first
  KeyPlace places[Config::kKeys];
};

// What a row knows of the keys so far; every lane of its warp holds the same.
struct RowState {
  float maximum = -INFINITY;
  float sum = 0.0f;
};

// The weight of a key that a row does not see: adds nothing, and can be told from a weight that
// vanished, whose value must count if it is NaN or infinite.
__device__ inline float unseen_weight() {
  return -0.0f;
}
__device__ inline bool is_unseen(float weight) {
  return __float_as_uint(weight) == 0x80000000u;
}

template <int kRows, int kColumns>
__device__ inline void add_parts(float (&sums)[kRows][kColumns],
                                 const float (&parts)[kRows][kColumns]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sums[i][j] += parts[i][j];
  }
}

__device__ inline void store_columns(float* to, const float (&values)[kVec8]) {
  reinterpret_cast<float4*>(to)[0] = {values[0], values[1], values[2], values[3]};
  reinterpret_cast<float4*>(to)[1] = {values[4], values[5], values[6], values[7]};
}

// What attend_tile.cuh multiplies, from its source into shared memory.

// Not inlined, as load_values is not: decoding any format is long, and one copy of it is enough.
template <typename Config, typename Source>
__device__ __noinline__ void load_products(const Source& source, AttendShared<Config>& shared,
                                           int column) {
  constexpr int kRuns = Config::kChunk / kVec8;
#pragma unroll
  for (int i = threadIdx.x; i < Config::kKeys * kRuns; i += Config::kThreads) {
    float values[kVec8];
    source.load_key(shared.places[i / kRuns], column + i % kRuns * kVec8, values);
    store_columns(&shared.products.keys[i / kRuns][i % kRuns * kVec8], values);
  }
  for (int i = threadIdx.x; i < Config::kRows * kRuns; i += Config::kThreads) {
    float values[kVec8];
    source.load_query(i / kRuns, column + i % kRuns * kVec8, values);
    store_columns(&shared.products.queries[i / kRuns][i % kRuns * kVec8], values);
  }
}

// scores += q · k over kSumColumns columns, summed for themselves.
template <typename Config>
__device__ inline void add_products(const AttendShared<Config>& shared, int row_group,
                                    int key_group, int first,
                                    float (&scores)[Config::kThreadRows][Config::kThreadKeys]) {
  constexpr int kThreadRows = Config::kThreadRows;
  constexpr int kThreadKeys = Config::kThreadKeys;
  float parts[kThreadRows][kThreadKeys] = {};
#pragma unroll 2
  for (int c = first; c < first + Config::kSumColumns; c += 4) {
    float4 q[kThreadRows];
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const int row = row_group + i * Config::kRowGroups;
      q[i] = *reinterpret_cast<const float4*>(&shared.products.queries[row][c]);
    }
#pragma unroll
    for (int j = 0; j < kThreadKeys; ++j) {
      const int key = key_group + j * Config::kKeyGroups;
      const float4 k = *reinterpret_cast<const float4*>(&shared.products.keys[key][c]);
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        float& part = parts[i][j];
        part = fmaf(q[i].w, k.w, fmaf(q[i].z, k.z, fmaf(q[i].y, k.y, fmaf(q[i].x, k.x, part))));
      }
    }
  }
  add_parts(scores, parts);
}

// Products of the tile's rows with the keys at shared.places, to shared.weights.
template <typename Config, typename Source>
__device__ inline void multiply_keys(const Source& source, AttendShared<Config>& shared) {
  constexpr int kThreadRows = Config::kThreadRows;
  constexpr int kThreadKeys = Config::kThreadKeys;
  const int key_group = static_cast<int>(threadIdx.x) % Config::kKeyGroups;
  const int row_group = static_cast<int>(threadIdx.x) / Config::kKeyGroups;
  float scores[kThreadRows][kThreadKeys] = {};
  for (int column = 0; column < source.key_width(); column += Config::kChunk) {
    if (column > 0) __syncthreads();
    load_products<Config>(source, shared, column);
    __syncthreads();
    for (int first = 0; first < Config::kChunk; first += Config::kSumColumns) {
      add_products<Config>(shared, row_group, key_group, first, scores);
    }
  }
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadKeys; ++j) {
      shared.weights[row_group + i * Config::kRowGroups][key_group + j * Config::kKeyGroups] =
          scores[i][j];
    }
  }
  __syncthreads();
}

// Whether a value is NaN or infinite.
template <typename Config, typename Source>
__device__ __noinline__ bool load_values(const Source& source, AttendShared<Config>& shared,
                                         int first_column) {
  constexpr int kRuns = Config::kValueColumns / kVec8;
  bool is_wild = false;
#pragma unroll
  for (int i = threadIdx.x; i < Config::kKeys * kRuns; i += Config::kThreads) {
    float values[kVec8];
    source.load_value(shared.places[i / kRuns], first_column + i % kRuns * kVec8, values);
#pragma unroll
    for (const float value : values) is_wild = is_wild || !isfinite(value);
    store_columns(&shared.values[i / kRuns][i % kRuns * kVec8], values);
  }
  return is_wild;
}

template <typename Config, typename Source> class AttendTile {
 public:
  __device__ AttendTile(Source& source, AttendShared<Config>& shared, int first_value_column)
      : source_(source),
        shared_(shared),
        first_value_column_(first_value_column),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  // All keys, in order. Resumes from whatever state and sums hold.
  __device__ void run() {
    const KeySpan slots = source_.slots();
    const std::int64_t first = slots.first / kKeys * kKeys;
    for (std::int64_t tile = first; tile < slots.last; tile += kKeys) {
      // Of the whole tile: its keys past the span would else count as seen with the others.
      const TileStatus status = source_.classify({tile, tile + kKeys});
      if (status == TileStatus::none) continue;
      source_.begin_tile(tile);
      const bool is_whole = locate_keys(tile) && status == TileStatus::all;
      multiply_keys<Config>(source_, shared_);
      weigh(tile, is_whole);
      multiply_values();
    }
  }

  // The i-th row of this thread's warp, and what it holds of it: four value columns per vector.
  __device__ static int row_of(int i) { return static_cast<int>(threadIdx.x) / 32 * kWarpRows + i; }
  __device__ int value_column(int vector) const {
    return first_value_column_ + vector * Config::kValueColumns + 4 * lane_;
  }

  RowState states[Config::kWarpRows];
  float sums[Config::kWarpRows][Config::kVectors][4] = {};

 private:
  static constexpr int kKeys = Config::kKeys;
  static constexpr int kWarpRows = Config::kWarpRows;

  // Whether every slot of the tile has a key.
  __device__ bool locate_keys(std::int64_t tile) {
    __syncthreads();  // the tile before this one is not read any more
    bool exists = true;
    if (threadIdx.x < kKeys) {
      const KeyPlace place = source_.locate(tile + threadIdx.x);
      shared_.places[threadIdx.x] = place;
      exists = place.exists();
    }
    return __syncthreads_and(exists) != 0;
  }

  // Scores to weights in place, one warp its own rows; the sums so far shrink to the new maximum.
  __device__ void weigh(std::int64_t tile, bool is_whole) {
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const typename Source::Row row = source_.row(row_of(i));
      float* weights = shared_.weights[row_of(i)];
      float scores[2];
      bool is_seen[2];
      float largest = -INFINITY;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = lane_ + 32 * half;
        is_seen[half] =
            is_whole || (shared_.places[key].exists() && source_.shows(row, tile + key));
        scores[half] = source_.score(row, tile + key, weights[key]);
        if (is_seen[half]) largest = fmaxf(largest, scores[half]);
      }
      RowState& state = states[i];
      const float maximum = fmaxf(state.maximum, warp_max(largest));
      // Scores of -inf alone weigh nothing; -inf - -inf would be NaN.
      const float base = maximum == -INFINITY ? 0.0f : maximum;
      float sum = 0.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float weight = is_seen[half] ? expf(scores[half] - base) : unseen_weight();
        weights[lane_ + 32 * half] = weight;
        sum += weight;
      }
      const float shrink = expf(state.maximum - base);
      state = {.maximum = maximum, .sum = state.sum * shrink + warp_sum(sum)};
#pragma unroll
      for (int v = 0; v < Config::kVectors; ++v) {
#pragma unroll
        for (float& element : sums[i][v]) element *= shrink;
      }
    }
  }

  __device__ void multiply_values() {
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) {
      const int first_column = first_value_column_ + v * Config::kValueColumns;
      if (first_column >= source_.value_width()) break;
      if (v > 0) __syncthreads();  // the scores' own barrier has freed the tile before
      const bool is_wild = load_values<Config>(source_, shared_, first_column);
      const bool has_wild = __syncthreads_or(is_wild) != 0;
      for (int key = 0; key < kKeys; key += Config::kSumKeys) {
        float parts[kWarpRows][4] = {};
        if (has_wild) {
          add_wild_values(key, parts);
        } else {
          add_values(key, parts);
        }
#pragma unroll
        for (int i = 0; i < kWarpRows; ++i) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sums[i][v][c] += parts[i][c];
        }
      }
    }
  }

  // parts += weights · values over kSumKeys keys.
  __device__ void add_values(int first, float (&parts)[kWarpRows][4]) {
#pragma unroll 2
    for (int key = first; key < first + Config::kSumKeys; key += 4) {
      float4 weights[kWarpRows];
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) {
        weights[i] = *reinterpret_cast<const float4*>(&shared_.weights[row_of(i)][key]);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float4 value = *reinterpret_cast<const float4*>(&shared_.values[key + k][4 * lane_]);
#pragma unroll
        for (int i = 0; i < kWarpRows; ++i) {
          const float weight = k == 0   ? weights[i].x
                               : k == 1 ? weights[i].y
                               : k == 2 ? weights[i].z
                                        : weights[i].w;
          parts[i][0] = fmaf(weight, value.x, parts[i][0]);
          parts[i][1] = fmaf(weight, value.y, parts[i][1]);
          parts[i][2] = fmaf(weight, value.z, parts[i][2]);
          parts[i][3] = fmaf(weight, value.w, parts[i][3]);
        }
      }
    }
  }

  // Selected, not multiplied by zero: NaN in a value reaches only the rows that see its key.
  __device__ void add_wild_values(int first, float (&parts)[kWarpRows][4]) {
    for (int key = first; key < first + Config::kSumKeys; ++key) {
      const float* values = &shared_.values[key][4 * lane_];
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) {
        const float weight = shared_.weights[row_of(i)][key];
        if (is_unseen(weight)) continue;
#pragma unroll
        for (int c = 0; c < 4; ++c) parts[i][c] = fmaf(weight, values[c], parts[i][c]);
      }
    }
  }

  Source& source_;
  AttendShared<Config>& shared_;
  int first_value_column_;
  int lane_;
};

}  // namespace quire::cuda
