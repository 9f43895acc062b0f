// SPDX-License-Identifier: Apache-2.0
// Norm and rotation of rows of 128 half-split 16-bit columns, all of them rotated. Eight lanes take several rows of one
// token, one after the other: angles by the row were two thirds of all that went through L1. Vector v of a row (columns 8v
// to 8v + 7) and vector v + 8 are lane v's, which are the two halves of its pairs. A lane knows in registers what the
// norm's weights and the angles make of a pair:
//   (a, b) → factor · (a · γa · cos - b · γb · sin, a · γa · sin + b · γb · cos)
#include <algorithm>

#include "cuda/any/rope/norm_weights.cuh"
#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/rows/rope_angles.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::any::rope {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;
constexpr int kBlocksPerSm = 4;
constexpr int kRowLanes = kNormedRowColumns / (2 * kVec8);  // that share a row
constexpr int kRowsInFlight = 2;                            // of a lane
constexpr int kTokens = kWarp / kRowLanes;                  // of a warp
constexpr unsigned kAll = 0xffffffffu;

// Rows of one token that a lane has a share in.
struct TokenRows {
  const std::byte* from = nullptr;  // null: the rows are nobody's
  std::byte* to = nullptr;
  std::int64_t from_step = 0;
  std::int64_t to_step = 0;
  int count = 0;
};

// γ · cos and γ · sin of a lane's eight pairs: what becomes of them but for the factor of their row.
class PairFactors {
 public:
  __device__ PairFactors(const RopeParams& params, const NormWeights& weights, int angle_row,
                         int lane) {
    float first[kVec8];
    float second[kVec8];
    float cosines[kVec8];
    float sines[kVec8];
    weights.load(lane * kVec8, first);
    weights.load((kRowLanes + lane) * kVec8, second);
    load_angles<AngleTable::rows>(params.angles, 0, max(angle_row, 0), lane * kVec8, cosines,
                                  sines);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) {
      first_cos_[i] = first[i] * cosines[i];
      first_sin_[i] = first[i] * sines[i];
      second_cos_[i] = second[i] * cosines[i];
      second_sin_[i] = second[i] * sines[i];
    }
  }

  __device__ void apply(float factor, float (&a)[kVec8], float (&b)[kVec8]) const {
#pragma unroll
    for (int i = 0; i < kVec8; ++i) {
      const float rotated = fmaf(a[i], first_cos_[i], -(b[i] * second_sin_[i]));
      b[i] = fmaf(a[i], first_sin_[i], b[i] * second_cos_[i]) * factor;
      a[i] = rotated * factor;
    }
  }

 private:
  float first_cos_[kVec8];
  float first_sin_[kVec8];
  float second_cos_[kVec8];
  float second_sin_[kVec8];
};

template <DType kX> class RowRotation {
 public:
  __device__ RowRotation(const RopeParams& params, const RopeNorm& norm, const TokenRows& rows,
                         int lane)
      : rows_(rows),
        lane_bytes_(lane * kBytes),
        epsilon_(static_cast<float>(params.epsilon)),
        has_norm_(norm.gamma != nullptr) {}

  __device__ void load(int first) {
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      raw_[r][0] = raw_[r][1] = {};
      if (rows_.from == nullptr || first + r >= rows_.count) continue;
      const std::byte* from = rows_.from + (first + r) * rows_.from_step + lane_bytes_;
      __builtin_assume(__isGlobal(from));
      raw_[r][0] = X::load(from);
      raw_[r][1] = X::load(from + kRowLanes * kBytes);
    }
  }

  // All lanes of a warp take part in the sums.
  __device__ void finish(int first, const PairFactors& pairs) {
    float sums[kRowsInFlight];
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) sums[r] = squares(raw_[r]);
    sum_lanes<kRowLanes>(sums);
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      if (rows_.to == nullptr || first + r >= rows_.count) continue;
      std::byte* to = rows_.to + (first + r) * rows_.to_step + lane_bytes_;
      store(raw_[r], sums[r], pairs, to);
    }
  }

 private:
  using X = Vec8<kX>;
  using Raw = typename X::Raw;
  static constexpr int kBytes = kVec8 * bits(kX) / 8;

  __device__ static float squares(const Raw (&raw)[2]) {
    float sum = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x[kVec8];
      X::decode(raw[half], x);
#pragma unroll
      for (int i = 0; i < kVec8; ++i) sum = fmaf(x[i], x[i], sum);
    }
    return sum;
  }

  __device__ void store(Raw (&raw)[2], float sum, const PairFactors& pairs, std::byte* to) const {
    forget_numbers(raw);
    const float mean = sum * (1.0f / kNormedRowColumns);
    float a[kVec8];
    float b[kVec8];
    X::decode(raw[0], a);
    X::decode(raw[1], b);
    pairs.apply(has_norm_ ? __frsqrt_rn(mean + epsilon_) : 1.0f, a, b);
    __builtin_assume(__isGlobal(to));
    store_vec8<kX>(to, a);
    store_vec8<kX>(to + kRowLanes * kBytes, b);
  }

  // What was decoded for the sum is decoded again: two rows of it have no place.
  __device__ static void forget_numbers(Raw (&raw)[2]) {
#pragma unroll
    for (Raw& half : raw) asm volatile("" : "+r"(half.x), "+r"(half.y), "+r"(half.z), "+r"(half.w));
  }

  const TokenRows& rows_;
  int lane_bytes_;
  float epsilon_;
  bool has_norm_;
  Raw raw_[kRowsInFlight][2];
};

template <DType kX>
__device__ inline void rotate_rows(const RopeParams& params, const RopeNorm& norm,
                                   const NormWeights& weights, const TokenRows& rows,
                                   int angle_row) {
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  RowRotation<kX> rotation(params, norm, rows, lane);
  rotation.load(0);
  const PairFactors pairs(params, weights, angle_row, lane);
#pragma unroll 1
  for (int first = 0; first < rows.count; first += kRowsInFlight) {
    if (first > 0) rotation.load(first);
    rotation.finish(first, pairs);
  }
}

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
    return token_of_lane(found_, known_ * kTokens + lane_ / kRowLanes);
  }
  __device__ int first_row() const { return chunk_of(unit_) * share_.unit_rows; }
  __device__ std::int64_t token_index() const { return first_token(unit_) + lane_ / kRowLanes; }

  __device__ void advance() {
    unit_ += warps_;
    known_ = (known_ + 1) % kRowLanes;
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

template <DType kX> void launch_rows(const RopeParams& params, int sms, cudaStream_t stream) {
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

void launch_tokens(const RopeParams& params, int sms, cudaStream_t stream) {
  if (params.q_dtype == DType::bf16) return launch_rows<DType::bf16>(params, sms, stream);
  launch_rows<DType::f16>(params, sms, stream);
}

}  // namespace quire::cuda::any::rope
