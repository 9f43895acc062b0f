// SPDX-License-Identifier: Apache-2.0
// Norm and rotation of rows of 128 columns (turned_rows.cuh). Eight lanes take several rows of one token, one after the
// other: angles by the row were two thirds of all that went through L1.
#include <algorithm>

#include "cuda/any/rope/turned_rows.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::rope {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;
constexpr int kBlocksPerSm = 4;
constexpr int kTokens = kWarp / kTurnLanes;  // of a warp
constexpr unsigned kAll = 0xffffffffu;

// Units of some rows of four neighbouring tokens. A token's rows are the key's heads, then q's.
struct UnitShare {
  Divisor quads;  // of tokens
  int unit_rows;  // of a token
  int units;
};

// What is known of a token; a lane each.
struct LaneToken {
  std::byte* keys = nullptr;  // the row of head 0; null: nowhere
  int angles = -1;            // row of freqs_cis; -1: the token is nobody's
};

__device__ LaneToken find_token(const RopeParams& params, const TokenFinder& finder,
                                std::int64_t token) {
  const TokenPlace place = finder.find(token);
  LaneToken found;
  if (!place.exists() || token >= params.tokens) return found;
  found.angles = static_cast<int>(token_angles(params.angles, token, place.position));
  if (params.key_heads == 0) return found;
  found.keys = first_row(params.key, place);
  if (found.keys != nullptr) found.keys += params.key.row_format.parts[0].offset_bytes;
  return found;
}

__device__ LaneToken token_of_lane(const LaneToken& own, int lane) {
  auto* keys = reinterpret_cast<std::byte*>(
      __shfl_sync(kAll, reinterpret_cast<unsigned long long>(own.keys), lane));
  __builtin_assume(__isGlobal(keys));
  return {keys, __shfl_sync(kAll, own.angles, lane)};
}

__device__ TokenRows key_rows(const RopeParams& params, const LaneToken& token, int first_head,
                              int count) {
  TokenRows rows;
  rows.count = count;
  if (token.angles < 0 || token.keys == nullptr) return rows;
  rows.from_step = rows.to_step = params.key.head_stride_bytes;
  rows.from = rows.to = token.keys + first_head * rows.from_step;
  return rows;
}

__device__ TokenRows query_rows(const RopeParams& params, const LaneToken& token,
                                std::int64_t index, int first_head, int count) {
  TokenRows rows;
  rows.count = count;
  if (token.angles < 0) return rows;
  rows.from_step = params.q_head_bytes;
  rows.to_step = params.out_head_bytes;
  rows.from = params.q + index * params.q_token_bytes + first_head * rows.from_step;
  rows.to = params.out + index * params.out_token_bytes + first_head * rows.to_step;
  return rows;
}

// The units of a warp: the tokens of the next eight are found at a time.
class UnitWalk {
 public:
  __device__ UnitWalk(const RopeParams& params, const UnitShare& share)
      : params_(params),
        share_(share),
        finder_(params.row_offsets, params.key.cache_lengths, params.key.batch),
        lane_(static_cast<int>(threadIdx.x) % kWarp),
        warps_(static_cast<int>(gridDim.x * (kThreads / kWarp))),
        unit_(static_cast<int>(blockIdx.x * kThreads + threadIdx.x) / kWarp) {
    if (!is_over()) find();
  }

  __device__ bool is_over() const { return unit_ >= share_.units; }
  __device__ LaneToken token() const {
    return token_of_lane(found_, known_ * kTokens + lane_ / kTurnLanes);
  }
  __device__ int first_row() const { return chunk_of(unit_) * share_.unit_rows; }
  __device__ std::int64_t token_index() const { return first_token(unit_) + lane_ / kTurnLanes; }

  __device__ void advance() {
    unit_ += warps_;
    known_ = (known_ + 1) % kTurnLanes;
    if (known_ == 0 && !is_over()) find();
  }

 private:
  __device__ int chunk_of(int unit) const { return static_cast<int>(share_.quads.quotient(unit)); }
  __device__ std::int64_t first_token(int unit) const {
    const auto quads = static_cast<int>(share_.quads.value());
    return std::int64_t{unit - chunk_of(unit) * quads} * kTokens;
  }
  __device__ void find() {
    const int unit = min(unit_ + lane_ / kTokens * warps_, share_.units - 1);
    found_ = find_token(params_, finder_, first_token(unit) + lane_ % kTokens);
  }

  const RopeParams& params_;
  const UnitShare& share_;
  TokenFinder finder_;
  int lane_;
  int warps_;
  int unit_;
  int known_ = 0;
  LaneToken found_;
};

template <DType kX>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    normalize_and_rotate_tokens(const __grid_constant__ RopeParams params,
                                const __grid_constant__ UnitShare share) {
  __shared__ BlockWeights weights;
  const auto offset = static_cast<float>(params.weight_offset);
  weights.query.fill_or_ones(params.q_norm, kNormedRowColumns, offset);
  weights.key.fill_or_ones(params.key_norm, kNormedRowColumns, offset);
  UnitWalk walk(params, share);
  __syncthreads();
  for (; !walk.is_over(); walk.advance()) {
    const LaneToken token = walk.token();
    const int first = walk.first_row();
    const int keys = min(share.unit_rows, params.key_heads - first);
    if (keys > 0) {
      rotate_rows<kX>(params, params.key_norm, weights.key, key_rows(params, token, first, keys),
                      token.angles);
    }
    const int first_head = max(0, first - params.key_heads);
    const int heads = min(share.unit_rows - max(keys, 0), params.heads - first_head);
    if (heads > 0) {
      rotate_rows<kX>(params, params.q_norm, weights.query,
                      query_rows(params, token, walk.token_index(), first_head, heads),
                      token.angles);
    }
  }
}

template <DType kX> void launch_tokens(const RopeParams& params, int sms, cudaStream_t stream) {
  constexpr int kMostRows = 16;
  const auto quads = static_cast<unsigned>((params.tokens + kTokens - 1) / kTokens);
  const int rows = params.heads + params.key_heads;
  const int unit_rows = rows <= kMostRows ? rows : kMostRows / 2;
  const int units = static_cast<int>(quads) * ((rows + unit_rows - 1) / unit_rows);
  const std::int64_t blocks =
      std::min<std::int64_t>(kBlocksPerSm * sms, num_blocks(std::int64_t{units} * kWarp, kThreads));
  launch(normalize_and_rotate_tokens<kX>,
         {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)}, stream, params,
         UnitShare{.quads = Divisor(quads), .unit_rows = unit_rows, .units = units});
}

}  // namespace

void launch_normed_tokens(const RopeParams& params, int sms, cudaStream_t stream) {
  if (params.q_dtype == DType::bf16) return launch_tokens<DType::bf16>(params, sms, stream);
  launch_tokens<DType::f16>(params, sms, stream);
}

}  // namespace quire::cuda::any::rope
