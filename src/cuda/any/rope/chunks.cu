// SPDX-License-Identifier: Apache-2.0
// A warp takes a chunk of one token's heads, q's first and then the key's, then the chunk of the next token: the angles
// are loaded once and serve every row of a chunk. Rows are normalised first where there is a norm; without one only their
// rotated columns are loaded.
#include <algorithm>

#include "cuda/any/rope/norm_weights.cuh"
#include "cuda/any/rope/token_walk.cuh"
#include "cuda/common/rows/rope_angles.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::rope {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr unsigned kAll = 0xffffffffu;

enum class Pairing : std::uint8_t { half_split, interleaved };

// What a lane holds of a row: vectors of eight columns, `lanes` vectors from one to the next. Half-split: the first two are
// the halves of its pairs.

template <DType kXType, Pairing kPairing, AngleTable kAngleTable> struct RopeConfig {
  static constexpr DType kX = kXType;
  static constexpr AngleTable kTable = kAngleTable;
  static constexpr bool kIsSplit = kPairing == Pairing::half_split;
};

// Without a norm, of the rotated columns alone.
template <DType kX, Pairing kPairing, AngleTable kTable>
struct PlainConfig : RopeConfig<kX, kPairing, kTable> {
  static constexpr bool kHasNorm = false;
  static constexpr int kSlots = kPairing == Pairing::half_split ? 2 : 1;
  // Rows of a lane in flight: 64 bytes of them. With 160 and two thirds of the warps it is 2 % slower.
  static constexpr int kSteps = 64 / (kSlots * kVec8 * (bits(kX) / 8));
  // As many as their registers allow.
  static constexpr int kBlocksPerSm = kTable == AngleTable::rows ? 3 : 2;
};

// With norms, of whole rows. kLaneBytes: of rows that a lane has in flight; with more than 128 f32 spills registers.
// AngleTable::any: how the angles stand is asked at run time.
template <DType kX, Pairing kPairing, int kLaneSlots, int kLaneBytes = 128,
          AngleTable kTable = AngleTable::any>
struct NormedConfig : RopeConfig<kX, kPairing, kTable> {
  static constexpr bool kHasNorm = true;
  static constexpr int kSlots = kLaneSlots;
  static constexpr int kSteps = kLaneBytes / (kSlots * kVec8 * (bits(kX) / 8));
  // As many as their registers allow.
  static constexpr int kBlocksPerSm = kLaneBytes == 64 ? 3 : bits(kX) == 32 && kSlots > 2 ? 1 : 2;
};

// What a row's head says of it.
struct RopeRowKind {
  const RopeNorm& norm;
  const NormWeights& weights;
  int width;
  bool is_key;
};

template <typename Config> class ChunkRotation {
 public:
  // `lanes` share a row; with norms a power of two.
  __device__ ChunkRotation(const RopeParams& params, const BlockWeights* weights, int lanes)
      : params_(params), weights_(weights), lanes_(lanes), rows_(kWarp / lanes) {
    const int lane = threadIdx.x % kWarp;
    row_ = lane / lanes;
    lane_ = Config::kHasNorm ? lane & (lanes - 1) : lane - row_ * lanes;
  }

  static __host__ __device__ int heads_per_chunk(int lanes) {
    return kWarp / lanes * Config::kSteps;
  }

  // The chunk of heads at which the walk stands; false: its token is nobody's, and so are those that follow. All lanes
  // of the warp stay together: with norms they take part in each other's sums.
  __device__ bool run(TokenWalk& walk) {
    token_ = walk.token();
    first_head_ = walk.chunk() * rows_ * Config::kSteps;
    Raw raw[Config::kSteps] = {};
    // q's rows are on their way before the token is looked up.
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      if (is_query(s)) load(query(s), params_.head_dim, raw[s]);
    }
    angles_ = walk.angles();
    if (angles_ < 0) return false;
    Angles angles;
    if (kTokenHasAngles && has_row()) find_angles(lane_ * kPairs, angles);
    std::byte* keys = lane_keys(walk.keys());
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      if (is_key(s, keys)) load(key(s, keys), params_.key_width, raw[s]);
    }
    float sums[Config::kSteps];
    if constexpr (Config::kHasNorm) add_squares(raw, sums);
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      if constexpr (Config::kHasNorm) {
        std::byte* out = is_query(s) ? target(s) : is_key(s, keys) ? key(s, keys) : nullptr;
        if (out != nullptr) normalize_and_rotate(s, angles, raw[s], sums[s], out);
      } else {
        if (is_query(s)) rotate_only(angles, raw[s], target(s));
        if (is_key(s, keys)) rotate_only(angles, raw[s], key(s, keys));
      }
    }
    if (!Config::kHasNorm && params_.out != params_.q) copy_rest();
    return true;
  }

 private:
  using X = Vec8<Config::kX>;
  using Raw = typename X::Raw[Config::kSlots];
  using Values = float[Config::kSlots][kVec8];
  static constexpr int kBytes = bits(Config::kX) / 8;
  static constexpr int kPairs = Config::kIsSplit ? kVec8 : kVec8 / 2;  // of a lane, or of a vector
  // Whole interleaved rows have other pairs in every vector.
  static constexpr bool kTokenHasAngles = Config::kIsSplit || !Config::kHasNorm;

  struct Angles {
    float cosines[kPairs];
    float sines[kPairs];
  };

  // Only without norms there may be lanes that have none.
  __device__ bool has_row() const {
    return Config::kHasNorm || row_ < rows_;
  }
  __device__ int head(int step) const {
    return first_head_ + step * rows_ + row_;
  }
  __device__ bool is_query(int step) const {
    return has_row() && head(step) < params_.heads;
  }
  __device__ int column(int slot) const {
    return (slot * lanes_ + lane_) * kVec8;
  }

  // Bytes from a row of q to the lane's first vector, and from that one to the others.
  __device__ int lane_bytes() const {
    const int first =
        Config::kHasNorm || Config::kIsSplit ? 0 : params_.head_dim - params_.rope_dim;
    return (first + lane_ * kVec8) * kBytes;
  }
  __device__ int slot_bytes(int slot) const {
    return slot * lanes_ * kVec8 * kBytes;
  }
  __device__ const std::byte* query(int step) const {
    return params_.q + token_ * params_.q_token_bytes + head(step) * params_.q_head_bytes +
           lane_bytes();
  }
  __device__ std::byte* target(int step) const {
    return params_.out + token_ * params_.out_token_bytes + head(step) * params_.out_head_bytes +
           lane_bytes();
  }
  // The lane's first vector of the key row of head 0.
  __device__ std::byte* lane_keys(std::byte* keys) const {
    if (keys == nullptr) return nullptr;
    return keys + lane_ * kVec8 * kBytes +
           (Config::kHasNorm ? params_.key.row_format.parts[0].offset_bytes
                             : params_.key_rope_bytes);
  }
  __device__ bool is_key(int step, const std::byte* keys) const {
    return keys != nullptr && has_row() && head(step) >= params_.heads &&
           head(step) < params_.heads + params_.key_heads;
  }
  __device__ std::byte* key(int step, std::byte* keys) const {
    return keys + (head(step) - params_.heads) * params_.key.head_stride_bytes;
  }
  __device__ RopeRowKind kind(int step) const {
    if (head(step) < params_.heads) {
      return {params_.q_norm, weights_->query, params_.head_dim, false};
    }
    return {params_.key_norm, weights_->key, params_.key_width, true};
  }

  __device__ void load(const std::byte* row, int width, Raw& raw) const {
    __builtin_assume(__isGlobal(row));
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (!Config::kHasNorm || column(s) < width) raw[s] = X::load(row + slot_bytes(s));
    }
  }

  __device__ void find_angles(int first, Angles& angles) const {
    if (Config::kTable == AngleTable::rows ||
        (Config::kHasNorm && params_.angles.stand_in_rows())) {
      load_angles<AngleTable::rows>(params_.angles, token_, angles_, first, angles.cosines,
                                    angles.sines);
    } else {
      load_angles<AngleTable::any>(params_.angles, token_, angles_, first, angles.cosines,
                                   angles.sines);
    }
  }

  // The pairs of a vector, or of the lane's first two.
  __device__ static void rotate(const Angles& angles, float (&first)[kVec8],
                                float (&second)[kVec8]) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      float& a = Config::kIsSplit ? first[j] : first[2 * j % kVec8];
      float& b = Config::kIsSplit ? second[j] : first[(2 * j + 1) % kVec8];
      rotate_pair(a, b, angles.cosines[j], angles.sines[j]);
    }
  }

  __device__ void rotate_only(const Angles& angles, const Raw& raw, std::byte* out) const {
    Values x;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) X::decode(raw[s], x[s]);
    rotate(angles, x[0], x[Config::kSlots - 1]);
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) store_vec8<Config::kX>(out + slot_bytes(s), x[s]);
  }

  // The columns of q that are not rotated, for the chunk's heads.
  __device__ void copy_rest() const {
    const int rest = (params_.head_dim - params_.rope_dim) / kVec8;
    const int first = Config::kIsSplit ? params_.rope_dim : 0;
    const int heads = min(rows_ * Config::kSteps, params_.heads - first_head_);
#pragma unroll 4
    for (int i = threadIdx.x % kWarp; i < heads * rest; i += kWarp) {
      const int head = first_head_ + i / rest;
      const int bytes = (first + i % rest * kVec8) * kBytes;
      const auto raw =
          X::load(params_.q + token_ * params_.q_token_bytes + head * params_.q_head_bytes + bytes);
      *reinterpret_cast<typename X::Raw*>(params_.out + token_ * params_.out_token_bytes +
                                          head * params_.out_head_bytes + bytes) = raw;
    }
  }

  // Of the normed columns of each row, over all lanes.
  __device__ void add_squares(const Raw (&raw)[Config::kSteps],
                              float (&sums)[Config::kSteps]) const {
#pragma unroll
    for (int step = 0; step < Config::kSteps; ++step) {
      const int columns = kind(step).norm.columns;
      sums[step] = 0.0f;
#pragma unroll
      for (int s = 0; s < Config::kSlots; ++s) {
        float x[kVec8];
        X::decode(raw[step][s], x);
        if (column(s) >= columns) continue;
#pragma unroll
        for (int i = 0; i < kVec8; ++i) sums[step] = fmaf(x[i], x[i], sums[step]);
      }
    }
    for (int lane = lanes_ / 2; lane > 0; lane /= 2) {
#pragma unroll
      for (int s = 0; s < Config::kSteps; ++s) sums[s] += __shfl_xor_sync(kAll, sums[s], lane);
    }
  }

  __device__ static float mean_of(float sum, const RopeNorm& norm) {
    return norm.exact_inverse != 0.0f ? sum * norm.exact_inverse
                                      : sum / static_cast<float>(norm.columns);
  }

  __device__ void normalize_and_rotate(int step, const Angles& angles, const Raw& raw, float sum,
                                       std::byte* out) const {
    const RopeRowKind row = kind(step);
    const float mean = mean_of(sum, row.norm);
    const float factor = __frsqrt_rn(mean + static_cast<float>(params_.epsilon));
    Values x;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      X::decode(raw[s], x[s]);
      if (column(s) < row.norm.columns) row.weights.scale(column(s), factor, x[s]);
    }
    if constexpr (Config::kIsSplit) {
      rotate(angles, x[0], x[1]);
    } else {
#pragma unroll
      for (int s = 0; s < Config::kSlots; ++s) {
        const int first = column(s) - (row.width - params_.rope_dim);
        if (first < 0 || column(s) >= row.width) continue;
        Angles own;
        find_angles(first / 2, own);
        rotate(own, x[s], x[s]);
      }
    }
    store(row, raw, x, out);
  }

  // Columns that do not change keep their bits; in a key they are not even written.
  __device__ void store(const RopeRowKind& row, const Raw& raw, const Values& x,
                        std::byte* out) const {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) >= row.width) continue;
      const bool is_rotated = Config::kIsSplit ? s < 2 : column(s) >= row.width - params_.rope_dim;
      auto* vector = reinterpret_cast<typename X::Raw*>(out + slot_bytes(s));
      if (column(s) < row.norm.columns || is_rotated) {
        *vector = X::encode(x[s]);
      } else if (!row.is_key) {
        *vector = raw[s];
      }
    }
  }

  const RopeParams& params_;
  const BlockWeights* weights_;  // null without norms
  int lanes_;
  int rows_;  // of a warp at a time
  int row_;   // this lane's; rows_ and beyond: none
  int lane_;  // among those of its row
  std::int64_t token_ = 0;
  std::int64_t angles_ = 0;
  int first_head_ = 0;  // q's heads, then the key's
};

// What is asked first stands first: a line of parameters is a read from memory at the start of a kernel.
template <typename Config>
__global__ void __launch_bounds__(kThreads, Config::kBlocksPerSm)
    rotate_chunks(const __grid_constant__ ChunkShare share, int lanes,
                  const __grid_constant__ RopeParams params) {
  TokenWalk walk(params, share);
  const BlockWeights* norms = nullptr;
  if constexpr (Config::kHasNorm) {
    __shared__ BlockWeights weights;
    weights.query.fill(params.q_norm, static_cast<float>(params.weight_offset));
    weights.key.fill(params.key_norm, static_cast<float>(params.weight_offset));
    __syncthreads();
    norms = &weights;
  }
  ChunkRotation<Config> rotation(params, norms, lanes);
  if (!walk.advance()) return;
  while (rotation.run(walk) && walk.advance()) {
  }
}

template <typename Config>
void launch_chunks(const RopeParams& params, int lanes, int sms, cudaStream_t stream) {
  const int per_chunk = ChunkRotation<Config>::heads_per_chunk(lanes);
  const int chunks = (params.heads + params.key_heads + per_chunk - 1) / per_chunk;
  const std::int64_t blocks = std::min<std::int64_t>(
      Config::kBlocksPerSm * sms, num_blocks(params.tokens * chunks * kWarp, kThreads));
  launch(rotate_chunks<Config>,
         {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)}, stream,
         ChunkShare{.per_token = Divisor(static_cast<unsigned>(chunks)),
                    .chunks = static_cast<int>(params.tokens * chunks)},
         lanes, params);
}

// start<dtype, pairing>(), those of q.
template <typename Start> void with_pairs(const RopeParams& params, const Start& start) {
  with_vec8_type(params.q_dtype, [&]<DType kX>() {
    if (params.interleaved) return start.template operator()<kX, Pairing::interleaved>();
    start.template operator()<kX, Pairing::half_split>();
  });
}

}  // namespace

void launch_plain(const RopeParams& params, int sms, cudaStream_t stream) {
  const int lanes = params.rope_dim / (params.interleaved ? kVec8 : 2 * kVec8);
  with_pairs(params, [&]<DType kX, Pairing kPairing>() {
    if (params.angles.stand_in_rows()) {
      using Usual = PlainConfig<kX, kPairing, AngleTable::rows>;
      return launch_chunks<Usual>(params, lanes, sms, stream);
    }
    launch_chunks<PlainConfig<kX, kPairing, AngleTable::any>>(params, lanes, sms, stream);
  });
}

void launch_normed(const RopeParams& params, const NormedLayout& layout, int sms,
                   cudaStream_t stream) {
  with_pairs(params, [&]<DType kX, Pairing kPairing>() {
    if constexpr (bits(kX) == 16 && kPairing == Pairing::half_split) {
      // Fewer rows in flight and half as many warps again: better by a seventh, unless that makes more
      // chunks of heads that are not full.
      using Usual = NormedConfig<kX, kPairing, 2, 64, AngleTable::rows>;
      const int per_chunk = ChunkRotation<Usual>::heads_per_chunk(layout.lanes);
      if (layout.slots <= 2 && (params.heads + params.key_heads) % per_chunk == 0 &&
          params.angles.stand_in_rows()) {
        return launch_chunks<Usual>(params, layout.lanes, sms, stream);
      }
    }
    if (layout.slots <= 2) {
      return launch_chunks<NormedConfig<kX, kPairing, 2>>(params, layout.lanes, sms, stream);
    }
    launch_chunks<NormedConfig<kX, kPairing, 4>>(params, layout.lanes, sms, stream);
  });
}

}  // namespace quire::cuda::any::rope
