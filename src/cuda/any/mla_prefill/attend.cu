// SPDX-License-Identifier: Apache-2.0
// Attention of all tokens over one chunk, continuing from the chunks before it.
#include "cuda/any/mla_prefill/chunk_rows.cuh"
#include "cuda/common/general_attention/attend_output.cuh"
#include "cuda/common/general_attention/attend_tile.cuh"
#include "cuda/common/mask/mask_program.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/softmax/score.h"

namespace quire::cuda::any::mla_prefill {

// The rows and keys of one tile of mla_prefill: tokens of one head over a chunk's up-projected keys.
// A slot is a position. Key columns: K from the buffer, then the rope part of the cache row, which
// all heads share.

class GeneralProjectedKeys {
 public:
  struct Row {
    std::int64_t token;
    std::int64_t position;
    std::int32_t head;  // among all
  };

  __device__ GeneralProjectedKeys(const ChunkAttentionParams& params, const RowTile& tile, int head)
      : params_(params),
        tile_(tile),
        head_(head),
        first_token_(params.row_offsets[tile.sequence]),
        cache_length_(params.cache.view.cache_lengths[tile.sequence]),
        num_keys_(cache_length_ + params.row_offsets[tile.sequence + 1] - first_token_),
        keys_(keys_of_chunk(params.chunks, params.chunk, tile.sequence, num_keys_)),
        slope_(params.score.alibi_slopes == nullptr
                   ? 0.0f
                   : params.score.alibi_slopes[params.first_head + head]),
        band_{.first = cache_length_ + tile.first_row,
              .last = cache_length_ + tile.first_row + tile.num_rows - 1,
              .cache_length = cache_length_,
              .first_token = first_token_ + tile.first_row} {}

  __device__ bool is_empty() const { return keys_.is_empty(); }
  __device__ int num_rows() const { return static_cast<int>(tile_.num_rows); }
  __device__ int key_width() const { return params_.q.width; }
  __device__ int value_width() const { return params_.output.width; }
  __device__ KeySpan slots() const {
    const KeySpan span = visible_span(params_.mask, band_, num_keys_);
    return {max(span.first, keys_.first), min(span.last, keys_.last)};
  }
  __device__ TileStatus classify(const KeySpan& keys) const {
    return cuda::classify(params_.mask, band_, keys);
  }
  __device__ void begin_tile(std::int64_t) {}

  __device__ Row row(int r) const {
    const std::int64_t local = tile_.first_row + min(r, num_rows() - 1);
    return {.token = first_token_ + local,
            .position = cache_length_ + local,
            .head = params_.first_head + head_};
  }
  __device__ bool shows(const Row& row, std::int64_t slot) const {
    return cuda::shows(
        params_.mask, {.token = row.token, .position = row.position, .cache_length = cache_length_},
        slot);
  }
  __device__ float score(const Row& row, std::int64_t slot, float raw) const {
    return modify_score(params_.score, slope_, raw, slot - row.position);
  }

  // `key` is the buffer's row, `value` the cache's.
  __device__ KeyPlace locate(std::int64_t slot) const {
    if (slot < keys_.first || slot >= keys_.last) return {};
    const std::int64_t row = keys_.buffer_row + slot - keys_.first;
    const RowPlace cached = place_row(params_.cache.view, tile_.sequence, slot, 0);
    if (!cached.exists() || row >= params_.rows) return {};
    return {.key = {.row = params_.projected.data + row * params_.projected.token_bytes +
                           head_ * params_.projected.head_bytes},
            .value = cached};
  }

  __device__ void load_query(int r, int column, float (&values)[kVec8]) const {
    const std::byte* q = params_.q.data +
                         (first_token_ + tile_.first_row + r) * params_.q.token_bytes +
                         head_ * params_.q.head_bytes;
    load_columns(params_.q, r < num_rows() ? q : nullptr, column, values);
  }

  __device__ void load_key(const KeyPlace& place, int column, float (&values)[kVec8]) const {
    if (!place.exists() || column >= key_width()) return set_zero(values);
    const int rope_column = params_.latent + column - params_.nope;
    if (column + kVec8 <= params_.nope) {
      return load_columns(params_.projected, place.key.row, column, values);
    }
    if (column >= params_.nope && rope_column % kVec8 == 0) {
      return load_columns(params_.cache, place.value, rope_column,
                          params_.cache.view.row_format.width(), values);
    }
#pragma unroll
    for (int i = 0; i < kVec8; ++i) values[i] = load_key_column(place, column + i);
  }

  __device__ void load_value(const KeyPlace& place, int column, float (&values)[kVec8]) const {
    if (!place.exists() || column >= value_width()) return set_zero(values);
    const int first = params_.nope + column;
    if (first % kVec8 == 0 && column + kVec8 <= value_width()) {
      return load_columns(params_.projected, place.key.row, first, values);
    }
#pragma unroll
    for (int i = 0; i < kVec8; ++i) {
      values[i] = column + i < value_width()
                      ? load_one(place.key.row, params_.projected.dtype, first + i)
                      : 0.0f;
    }
  }

 private:
  __device__ float load_key_column(const KeyPlace& place, int column) const {
    if (column >= key_width()) return 0.0f;
    if (column < params_.nope) return load_one(place.key.row, params_.projected.dtype, column);
    return load_column(params_.cache.view, place.value, params_.latent + column - params_.nope);
  }

  const ChunkAttentionParams& params_;
  RowTile tile_;
  int head_;  // of the group
  std::int64_t first_token_;
  std::int64_t cache_length_;
  std::int64_t num_keys_;
  ChunkKeys keys_;
  float slope_;
  QueryBand band_;
};

namespace {

using Config = AttendConfig<32, 1>;
using Tile = AttendTile<Config, GeneralProjectedKeys>;

// What this warp keeps between chunks for one of its rows: each block of value columns has a copy of
// the maximum and the sum, so that no block reads what another one writes.
struct ChunkRowState {
  float* sums;
  float* row;
};

__device__ ChunkRowState kept_row(const ChunkAttentionParams& params, std::int64_t token) {
  const std::int64_t index = token * params.heads + blockIdx.y;
  return {.sums = params.state.sums + index * params.output.width,
          .row = params.state.rows + (index * gridDim.z + blockIdx.z) * 2};
}

template <typename Visit>
__device__ void visit_columns(const ChunkAttentionParams& params, Tile& attend, int i,
                              const Visit& visit) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int column = attend.value_column(0) + c;
    if (column < params.output.width) visit(column, attend.sums[i][0][c]);
  }
}

__device__ void load_state(const ChunkAttentionParams& params, const GeneralProjectedKeys& source,
                           Tile& attend) {
#pragma unroll
  for (int i = 0; i < Config::kWarpRows; ++i) {
    const ChunkRowState kept = kept_row(params, source.row(Tile::row_of(i)).token);
    attend.states[i] = {.maximum = kept.row[0], .sum = kept.row[1]};
    visit_columns(params, attend, i, [&](int column, float& sum) { sum = kept.sums[column]; });
  }
}

__device__ void store_state(const ChunkAttentionParams& params, const GeneralProjectedKeys& source,
                            Tile& attend) {
#pragma unroll
  for (int i = 0; i < Config::kWarpRows; ++i) {
    if (Tile::row_of(i) >= source.num_rows()) continue;
    const ChunkRowState kept = kept_row(params, source.row(Tile::row_of(i)).token);
    if (threadIdx.x % 32 == 0) {
      kept.row[0] = attend.states[i].maximum;
      kept.row[1] = attend.states[i].sum;
    }
    visit_columns(params, attend, i, [&](int column, float& sum) { kept.sums[column] = sum; });
  }
}

__global__ void __launch_bounds__(Config::kThreads, 2)
    attend_chunk(const __grid_constant__ ChunkAttentionParams params) {
  __shared__ AttendShared<Config> shared;
  const RowTile tile =
      find_row_tile(params.row_offsets, params.cache.view.batch, 1, Config::kRows, blockIdx.x);
  if (tile.is_empty()) return;
  GeneralProjectedKeys source(params, tile, static_cast<int>(blockIdx.y));
  if (params.place == ChunkPlace::middle && source.is_empty()) return;
  Tile attend(source, shared, static_cast<int>(blockIdx.z) * Config::kValueColumns);
  const bool continues = params.place == ChunkPlace::middle || params.place == ChunkPlace::last;
  const bool finishes = params.place == ChunkPlace::only || params.place == ChunkPlace::last;
  if (continues) load_state(params, source, attend);
  attend.run();
  if (finishes) {
    store_rows(attend, source, params.output);
  } else {
    store_state(params, source, attend);
  }
}

}  // namespace

void launch_chunk_attention(const ChunkAttentionParams& params, cudaStream_t stream) {
  const std::int64_t tiles = num_row_tiles(params.tokens, params.cache.view.batch, Config::kRows);
  launch(attend_chunk,
         {.grid = dim3(num_blocks(tiles, 1), static_cast<unsigned>(params.heads),
                       num_blocks(params.output.width, Config::kValueColumns)),
          .block = dim3(Config::kThreads)},
         stream, params);
}

}  // namespace quire::cuda::any::mla_prefill
