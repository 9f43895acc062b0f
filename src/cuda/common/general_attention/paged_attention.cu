// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/general_attention/attend_output.cuh"
#include "cuda/common/general_attention/attend_tile.cuh"
#include "cuda/common/general_attention/paged_attention.h"
#include "cuda/common/mask/mask_program.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/softmax/score.h"

namespace quire::cuda {

// The rows and keys of one tile of flash_attention: tokens × heads of a group over a sequence's pages.
// A slot is a position.

class GeneralPagedKeys {
 public:
  struct Row {
    std::int64_t token;
    std::int64_t position;
    std::int32_t head;
    float slope;
  };

  __device__ GeneralPagedKeys(const PagedAttentionParams& params, const RowTile& tile, int kv_head)
      : params_(params),
        tile_(tile),
        kv_head_(kv_head),
        first_token_(params.row_offsets[tile.sequence]),
        cache_length_(first_position(params.keys.view, tile.sequence)),
        num_keys_(params.keys.view.key_lengths != nullptr
                      ? std::int64_t{params.keys.view.key_lengths[tile.sequence]}
                      : cache_length_ + params.row_offsets[tile.sequence + 1] - first_token_),
        band_{.first = cache_length_ + tile.first_row / params.group,
              .last = cache_length_ + (tile.first_row + tile.num_rows - 1) / params.group,
              .cache_length = cache_length_,
              .first_token = first_token_ + tile.first_row / params.group} {}

  __device__ int num_rows() const { return static_cast<int>(tile_.num_rows); }
  __device__ int key_width() const { return params_.q.width; }
  __device__ int value_width() const { return params_.output.width; }
  __device__ KeySpan slots() const { return visible_span(params_.mask, band_, num_keys_); }
  __device__ TileStatus classify(const KeySpan& keys) const {
    return cuda::classify(params_.mask, band_, keys);
  }
  __device__ void begin_tile(std::int64_t) {}

  // Rows past the tile's last one repeat it; nobody stores them.
  __device__ Row row(int r) const {
    const std::int64_t packed = tile_.first_row + min(r, num_rows() - 1);
    const std::int64_t local = packed / params_.group;
    const auto head =
        static_cast<std::int32_t>(kv_head_ * params_.group + packed - local * params_.group);
    return {
        .token = first_token_ + local,
        .position = cache_length_ + local,
        .head = head,
        .slope = params_.score.alibi_slopes == nullptr ? 0.0f : params_.score.alibi_slopes[head]};
  }

  __device__ KeyPlace locate(std::int64_t slot) const {
    if (slot >= num_keys_) return {};
    return {.key = place_row(params_.keys.view, tile_.sequence, slot, kv_head_),
            .value = place_row(params_.values.view, tile_.sequence, slot, kv_head_)};
  }

  __device__ bool shows(const Row& row, std::int64_t slot) const {
    return cuda::shows(
        params_.mask, {.token = row.token, .position = row.position, .cache_length = cache_length_},
        slot);
  }
  __device__ float score(const Row& row, std::int64_t slot, float raw) const {
    return modify_score(params_.score, row.slope, raw, slot - row.position);
  }

  __device__ void load_query(int r, int column, float (&values)[kVec8]) const {
    if (r >= num_rows()) return set_zero(values);
    const Row at = row(r);
    load_columns(params_.q,
                 params_.q.data + at.token * params_.q.token_bytes + at.head * params_.q.head_bytes,
                 column, values);
  }
  __device__ void load_key(const KeyPlace& place, int column, float (&values)[kVec8]) const {
    load_columns(params_.keys, place.key, column, key_width(), values);
  }
  __device__ void load_value(const KeyPlace& place, int column, float (&values)[kVec8]) const {
    load_columns(params_.values, place.value, column, value_width(), values);
  }

 private:
  // Without pages there may be more queries than keys, the first of which stand before them.
  __device__ static std::int64_t first_position(const KvLayerView& view, std::int64_t sequence) {
    const std::uint32_t length = view.cache_lengths[sequence];
    return view.first_rows == nullptr ? std::int64_t{length}
                                      : std::int64_t{static_cast<std::int32_t>(length)};
  }

  const PagedAttentionParams& params_;
  RowTile tile_;
  int kv_head_;
  std::int64_t first_token_;
  std::int64_t cache_length_;
  std::int64_t num_keys_;
  QueryBand band_;
};

namespace {

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 2)
    attend_pages(const __grid_constant__ PagedAttentionParams params) {
  __shared__ AttendShared<Config> shared;
  const RowTile tile = find_row_tile(params.row_offsets, params.keys.view.batch, params.group,
                                     Config::kRows, blockIdx.x);
  if (tile.is_empty()) return;
  GeneralPagedKeys source(params, tile, static_cast<int>(blockIdx.y));
  AttendTile<Config, GeneralPagedKeys> attend(
      source, shared, static_cast<int>(blockIdx.z) * Config::kVectors * Config::kValueColumns);
  attend.run();
  store_rows(attend, source, params.output);
}

template <typename Config>
void launch_config(const PagedAttentionParams& params, cudaStream_t stream) {
  constexpr int kColumns = Config::kVectors * Config::kValueColumns;
  const std::int64_t tiles =
      num_row_tiles(params.tokens * params.group, params.keys.view.batch, Config::kRows);
  launch(attend_pages<Config>,
         {.grid = dim3(num_blocks(tiles, 1), static_cast<unsigned>(params.keys.view.num_heads),
                       num_blocks(params.output.width, kColumns)),
          .block = dim3(Config::kThreads)},
         stream, params);
}

}  // namespace

void launch_paged_attention(const PagedAttentionParams& params, cudaStream_t stream) {
  // Rows of a sequence on average: the lengths themselves are on the device.
  const bool is_short = params.tokens * params.group <= 8 * params.keys.view.batch;
  const bool has_one_block = params.output.width <= 128;
  if (is_short && has_one_block) return launch_config<AttendConfig<8, 1>>(params, stream);
  if (is_short) return launch_config<AttendConfig<8, 4>>(params, stream);
  if (has_one_block) return launch_config<AttendConfig<32, 1>>(params, stream);
  launch_config<AttendConfig<32, 4>>(params, stream);
}

}  // namespace quire::cuda
