// SPDX-License-Identifier: Apache-2.0
#include "cuda/any/sparse_mla/launch.h"

#include "cuda/common/general_attention/attend_output.cuh"
#include "cuda/common/general_attention/attend_tile.cuh"
#include "cuda/common/mask/mask_program.cuh"
#include "cuda/common/paging/row_reader.h"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/softmax/attend_output.h"

namespace quire::cuda::any::sparse_mla {

// A cache and the positions to take from it.
struct ChosenStream {
  RowReader rows;
  const std::int32_t* indices = nullptr;  // [tokens, slots]
  std::int64_t indices_stride = 0;
  std::int64_t slots = 0;
  const std::int32_t* lengths = nullptr;  // [tokens], null: all slots
  std::int64_t tokens_per_row = 1;        // lengths of sequences count tokens
};

struct SparseAttentionParams {
  PlainRows q;  // [tokens, heads, latent + rope]
  std::int64_t tokens = 0;
  std::int32_t heads = 0;
  const std::uint32_t* row_offsets = nullptr;
  ChosenStream streams[2];  // the chosen rows, then the extra ones; no slots: no stream
  float scale = 1.0f;
  AttendOutput output;
};

// The rows and keys of one tile of sparse_mla: heads of one token over the rows that its slots name.
// The slots of the second stream begin at a tile's border, so that a tile has one row format.

template <int kTileKeys> class ChosenKeys {
 public:
  struct Row {
    std::int64_t token;
    std::int32_t head;
  };

  __device__ ChosenKeys(const SparseAttentionParams& params, std::int64_t token, int sequence,
                        int first_head, int num_rows)
      : params_(params),
        token_(token),
        sequence_(sequence),
        first_head_(first_head),
        num_rows_(num_rows),
        border_((params.streams[0].slots + kTileKeys - 1) / kTileKeys * kTileKeys) {}

  __device__ int num_rows() const { return num_rows_; }
  __device__ int key_width() const { return params_.q.width; }
  __device__ int value_width() const { return params_.output.width; }
  __device__ KeySpan slots() const { return {0, border_ + params_.streams[1].slots}; }
  // Which slots hold a key is known once they are read.
  __device__ TileStatus classify(const KeySpan&) const { return TileStatus::all; }
  __device__ void begin_tile(std::int64_t slot) { stream_ = slot >= border_ ? 1 : 0; }

  __device__ Row row(int r) const {
    return {.token = token_, .head = first_head_ + min(r, num_rows_ - 1)};
  }
  __device__ bool shows(const Row&, std::int64_t) const { return true; }
  __device__ float score(const Row&, std::int64_t, float raw) const { return raw * params_.scale; }

  __device__ KeyPlace locate(std::int64_t slot) const {
    const ChosenStream& stream = params_.streams[stream_];
    const KvLayerView& view = stream.rows.view;
    slot -= stream_ == 1 ? border_ : 0;
    std::int64_t slots = stream.slots;
    if (stream.lengths != nullptr) slots = min(slots, std::int64_t{stream.lengths[token_]});
    if (slot >= slots) return {};
    const std::int64_t position = stream.indices[token_ * stream.indices_stride + slot];
    const std::int64_t num_tokens = std::int64_t{view.cache_lengths[sequence_]} +
                                    params_.row_offsets[sequence_ + 1] -
                                    params_.row_offsets[sequence_];
    if (position < 0 || position >= num_tokens / stream.tokens_per_row) return {};
    const RowPlace place = place_row(view, sequence_, position, 0);
    return {.key = place, .value = place};
  }

  __device__ void load_query(int r, int column, float (&values)[kVec8]) const {
    const std::byte* q = params_.q.data + token_ * params_.q.token_bytes +
                         std::int64_t{first_head_ + r} * params_.q.head_bytes;
    load_columns(params_.q, r < num_rows_ ? q : nullptr, column, values);
  }
  __device__ void load_key(const KeyPlace& place, int column, float (&values)[kVec8]) const {
    load_columns(params_.streams[stream_].rows, place.key, column, key_width(), values);
  }
  __device__ void load_value(const KeyPlace& place, int column, float (&values)[kVec8]) const {
    load_columns(params_.streams[stream_].rows, place.value, column, value_width(), values);
  }

 private:
  const SparseAttentionParams& params_;
  std::int64_t token_;
  int sequence_;
  int first_head_;
  int num_rows_;
  std::int64_t border_;  // first slot of the second stream
  int stream_ = 0;       // of the tile in hand
};

namespace {

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 2)
    attend_chosen(const __grid_constant__ SparseAttentionParams params) {
  using Keys = ChosenKeys<Config::kKeys>;
  __shared__ AttendShared<Config> shared;
  const KvLayerView& view = params.streams[0].rows.view;
  const std::int64_t token = blockIdx.x;
  const TokenPlace place =
      place_of_token(params.row_offsets, view.cache_lengths, view.batch, token);
  if (!place.exists()) return;
  const int first_head = static_cast<int>(blockIdx.y) * Config::kRows;
  Keys source(params, token, static_cast<int>(place.sequence), first_head,
              min(Config::kRows, params.heads - first_head));
  AttendTile<Config, Keys> attend(
      source, shared, static_cast<int>(blockIdx.z) * Config::kVectors * Config::kValueColumns);
  attend.run();
  store_rows(attend, source, params.output);
}

template <typename Config>
void launch_config(const SparseAttentionParams& params, cudaStream_t stream) {
  constexpr int kColumns = Config::kVectors * Config::kValueColumns;
  launch(attend_chosen<Config>,
         {.grid = dim3(num_blocks(params.tokens, 1), num_blocks(params.heads, Config::kRows),
                       num_blocks(params.output.width, kColumns)),
          .block = dim3(Config::kThreads)},
         stream, params);
}

ChosenStream chosen_stream(const PagedKVCache& cache, std::int64_t layer, const TensorView& indices,
                           const std::optional<TensorView>& lengths) {
  return {.rows = row_reader(cache.key(layer)),
          .indices = indices.as<const std::int32_t>(),
          .indices_stride = indices.strides[0],
          .slots = indices.shape[1],
          .lengths = lengths.has_value() ? lengths->as<const std::int32_t>() : nullptr};
}

void run(const SparseMlaArgs& args, const Context& context) {
  const DeviceScope scope(args.q.device);
  if (args.q.shape[0] == 0 || args.cache.batch() == 0) return;
  SparseAttentionParams params{
      .q = plain_rows(args.q),
      .tokens = args.q.shape[0],
      .heads = static_cast<std::int32_t>(args.q.shape[1]),
      .row_offsets = args.row_offsets.as<const std::uint32_t>(),
      .streams = {chosen_stream(args.cache, args.layer, args.indices, args.topk_lengths), {}},
      .scale = static_cast<float>(args.scale),
      .output = attend_output(args.out, args.lse, args.sinks)};
  if (args.extra.has_value()) {
    params.streams[1] = chosen_stream(args.extra->cache, args.extra->layer, args.extra->indices,
                                      args.extra->lengths);
    params.streams[1].tokens_per_row = args.extra->tokens_per_row;
  }
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (params.heads <= 8) return launch_config<AttendConfig<8, 4>>(params, stream);
  launch_config<AttendConfig<32, 4>>(params, stream);
}

}  // namespace

KernelPtr<SparseMlaArgs> prepare_general(const SparseMlaProblem&) {
  return std::make_unique<const PlainKernel<SparseMlaArgs>>(run);
}

}  // namespace quire::cuda::any::sparse_mla
