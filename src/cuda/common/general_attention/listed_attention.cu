// SPDX-License-Identifier: Apache-2.0
// A CTA per token, KV head and up to kRows of its query heads, which all see the same keys: those of the
// token's list that its mask shows. A slot is a key of a list: block slot / block_size of it.
#include "cuda/common/general_attention/attend_output.cuh"
#include "cuda/common/general_attention/attend_tile.cuh"
#include "cuda/common/general_attention/paged_attention.h"
#include "cuda/common/mask/mask_program.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/softmax/score.h"

namespace quire::cuda {

// The rows and keys of one tile.
class BlockListKeys {
 public:
  struct Row {
    std::int64_t token;
    std::int32_t head;
    float slope;
  };

  __device__ BlockListKeys(const PagedAttentionParams& params, std::int64_t token, int kv_head,
                           int first_head)
      : params_(params),
        token_(token),
        kv_head_(kv_head),
        first_head_(first_head),
        sequence_(sequence_of(params.row_offsets, params.keys.view.batch,
                              static_cast<std::uint32_t>(token))),
        list_(params.blocks.ids + token * params.blocks.token_stride +
              kv_head * params.blocks.head_stride) {
    const KvLayerView& view = params.keys.view;
    const std::int64_t first_token = params.row_offsets[sequence_];
    const std::uint32_t length = view.cache_lengths[sequence_];
    // Without pages there may be more queries than keys, the first of which stand before them.
    cached_ = view.first_rows == nullptr ? std::int64_t{length}
                                         : std::int64_t{static_cast<std::int32_t>(length)};
    num_keys_ = view.key_lengths != nullptr
                    ? std::int64_t{view.key_lengths[sequence_]}
                    : cached_ + params.row_offsets[sequence_ + 1] - first_token;
    position_ = cached_ + token - first_token;
  }

  __device__ int num_rows() const { return params_.group - first_head_; }
  __device__ int key_width() const { return params_.q.width; }
  __device__ int value_width() const { return params_.output.width; }
  __device__ KeySpan slots() const { return {0, params_.blocks.slots * params_.blocks.block_size}; }
  // A tile within one block that names nothing is skipped; what others hold is known once it is looked up.
  __device__ TileStatus classify(const KeySpan& slots) const {
    const std::int64_t block = slots.first / params_.blocks.block_size;
    const bool is_one_block = slots.last <= (block + 1) * params_.blocks.block_size;
    return is_one_block && list_[block] < 0 ? TileStatus::none : TileStatus::all;
  }
  __device__ void begin_tile(std::int64_t) {}

  // Rows past the last one repeat it; nobody stores them.
  __device__ Row row(int r) const {
    const int head = kv_head_ * params_.group + min(first_head_ + r, params_.group - 1);
    return {
        .token = token_,
        .head = head,
        .slope = params_.score.alibi_slopes == nullptr ? 0.0f : params_.score.alibi_slopes[head]};
  }

  __device__ KeyPlace locate(std::int64_t slot) const {
    if (slot >= slots().last) return {};
    const std::int64_t key = key_of(slot);
    if (key < 0 || key >= num_keys_ || !is_seen(key)) return {};
    return {.key = place_row(params_.keys.view, sequence_, key, kv_head_),
            .value = place_row(params_.values.view, sequence_, key, kv_head_)};
  }

  __device__ bool shows(const Row&, std::int64_t) const { return true; }
  __device__ float score(const Row& row, std::int64_t slot, float raw) const {
    const bool has_distance = params_.score.alibi_slopes != nullptr && slot < slots().last;
    return modify_score(params_.score, row.slope, raw, has_distance ? key_of(slot) - position_ : 0);
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
  // -1: its block names nothing.
  __device__ std::int64_t key_of(std::int64_t slot) const {
    const std::int64_t block = slot / params_.blocks.block_size;
    const std::int64_t id = list_[block];
    return id < 0 ? -1 : slot + (id - block) * params_.blocks.block_size;
  }
  // The heads of a token see the same keys.
  __device__ bool is_seen(std::int64_t key) const {
    return cuda::shows(params_.mask,
                       {.token = token_, .position = position_, .cache_length = cached_}, key);
  }

  const PagedAttentionParams& params_;
  std::int64_t token_;
  int kv_head_;
  int first_head_;  // of the group
  int sequence_;
  const std::int32_t* list_;
  std::int64_t cached_;
  std::int64_t num_keys_;
  std::int64_t position_;
};

namespace {

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 2)
    attend_lists(const __grid_constant__ PagedAttentionParams params) {
  __shared__ AttendShared<Config> shared;
  const int tiles = (params.group + Config::kRows - 1) / Config::kRows;
  const std::int64_t token = blockIdx.x / static_cast<unsigned>(tiles);
  const int first_head =
      static_cast<int>(blockIdx.x % static_cast<unsigned>(tiles)) * Config::kRows;
  if (token >= params.row_offsets[params.keys.view.batch]) return;  // nobody's
  BlockListKeys source(params, token, static_cast<int>(blockIdx.y), first_head);
  AttendTile<Config, BlockListKeys> attend(
      source, shared, static_cast<int>(blockIdx.z) * Config::kVectors * Config::kValueColumns);
  attend.run();
  store_rows(attend, source, params.output);
}

template <typename Config>
void launch_config(const PagedAttentionParams& params, cudaStream_t stream) {
  constexpr int kColumns = Config::kVectors * Config::kValueColumns;
  const std::int64_t tiles = (params.group + Config::kRows - 1) / Config::kRows;
  launch(attend_lists<Config>,
         {.grid = dim3(num_blocks(params.tokens * tiles, 1),
                       static_cast<unsigned>(params.keys.view.num_heads),
                       num_blocks(params.output.width, kColumns)),
          .block = dim3(Config::kThreads)},
         stream, params);
}

}  // namespace

void launch_listed_attention(const PagedAttentionParams& params, cudaStream_t stream) {
  const bool has_few_rows = params.group <= 8;
  const bool is_narrow = params.output.width <= 128;
  if (has_few_rows && is_narrow) return launch_config<AttendConfig<8, 1>>(params, stream);
  if (has_few_rows) return launch_config<AttendConfig<8, 4>>(params, stream);
  if (is_narrow) return launch_config<AttendConfig<32, 1>>(params, stream);
  launch_config<AttendConfig<32, 4>>(params, stream);
}

}  // namespace quire::cuda
