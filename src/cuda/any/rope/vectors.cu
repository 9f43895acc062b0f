// SPDX-License-Identifier: Apache-2.0
// A warp rotates up to kSteps rows per lane group of one token, then those of the next: the angles are loaded once
// and serve every head of a chunk, q's first and then the key's.
#include <algorithm>

#include "cuda/any/rope/params.h"
#include "cuda/any/rope/token_walk.cuh"
#include "cuda/common/rows/rope_angles.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda::any::rope {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

enum class VectorPairing : std::uint8_t { half_split, interleaved };

template <DType kXType, VectorPairing kPairsStand, AngleTable kAngleTable> struct RopeConfig {
  static constexpr DType kX = kXType;
  static constexpr AngleTable kTable = kAngleTable;
  static constexpr bool kIsSplit = kPairsStand == VectorPairing::half_split;
  static constexpr int kPairs = kIsSplit ? kVec8 : kVec8 / 2;  // of a lane
  static constexpr int kVectors = kIsSplit ? 2 : 1;            // of a lane and row
  // Rows of a lane in flight: 64 bytes of them. With 160 and two thirds of the warps it is 2 % slower.
  static constexpr int kSteps = 64 / (kVectors * kVec8 * (bits(kX) / 8));
  // As many as their registers allow.
  static constexpr int kBlocksPerSm = kTable == AngleTable::rows ? 3 : 2;
};

// Half-split: a in one vector, b in the other. Interleaved: a and b take turns.
template <typename Config>
__device__ void rotate(float (&values)[Config::kVectors][kVec8],
                       const float (&cosines)[Config::kPairs],
                       const float (&sines)[Config::kPairs]) {
#pragma unroll
  for (int j = 0; j < Config::kPairs; ++j) {
    float& a = Config::kIsSplit ? values[0][j] : values[0][2 * j % kVec8];
    float& b = Config::kIsSplit ? values[Config::kVectors - 1][j] : values[0][(2 * j + 1) % kVec8];
    rotate_pair(a, b, cosines[j], sines[j]);
  }
}

template <typename Config> class TokenRotation {
 public:
  __device__ explicit TokenRotation(const RopeParams& params) : params_(params) {
    const int lanes = params.rope_dim / 2 / Config::kPairs;  // that share a row
    const int lane = threadIdx.x % kWarp;
    rows_ = kWarp / lanes;
    row_ = lane / lanes;
    column_ = (lane - row_ * lanes) * kVec8;
  }

  static __host__ __device__ int heads_per_chunk(int rope_dim) {
    return kWarp / (rope_dim / 2 / Config::kPairs) * Config::kSteps;
  }

  // The chunk of heads at which the walk stands.
  __device__ void run(TokenWalk& walk) {
    token_ = walk.token();
    first_head_ = walk.chunk() * rows_ * Config::kSteps;
    Raw raw[Config::kSteps] = {};
    // q's rows are on their way before the token is looked up.
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      if (is_query(s)) load(query(s), raw[s]);
    }
    const RopeToken place = walk.place();
    if (!place.exists()) return;
    float cosines[Config::kPairs];
    float sines[Config::kPairs];
    if (row_ < rows_) {
      load_angles<Config::kTable>(params_.angles, token_, place.angles,
                                  column_ / kVec8 * Config::kPairs, cosines, sines);
    }
    std::byte* keys = rotated_keys(place.keys);
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      if (is_key(s, keys)) load(key(s, keys), raw[s]);
    }
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      if (is_query(s)) store(raw[s], cosines, sines, query_target(s));
      if (is_key(s, keys)) store(raw[s], cosines, sines, key(s, keys));
    }
    if (params_.out != params_.q) copy_rest();
  }

 private:
  using X = Eight<Config::kX>;
  using Raw = typename X::Raw[Config::kVectors];
  static constexpr int kBytes = bits(Config::kX) / 8;

  __device__ int head(int step) const {
    return first_head_ + step * rows_ + row_;
  }
  __device__ bool is_query(int step) const {
    return row_ < rows_ && head(step) < params_.heads;
  }
  __device__ bool is_key(int step, const std::byte* keys) const {
    return keys != nullptr && row_ < rows_ && head(step) >= params_.heads &&
           head(step) < params_.heads + params_.key_heads;
  }

  // Bytes of a row to the lane's first vector, in a row of `width` columns.
  __device__ int lane_bytes(int width) const {
    return (params_.first_column(width) + column_) * kBytes;
  }
  __device__ const std::byte* query(int step) const {
    return params_.q + token_ * params_.q_token_bytes + head(step) * params_.q_head_bytes +
           lane_bytes(params_.head_dim);
  }
  __device__ std::byte* query_target(int step) const {
    return params_.out + token_ * params_.out_token_bytes + head(step) * params_.out_head_bytes +
           lane_bytes(params_.head_dim);
  }
  // The lane's columns in the key row of head 0.
  __device__ std::byte* rotated_keys(std::byte* row) const {
    if (row == nullptr) return nullptr;
    return row + params_.key_rope_bytes + column_ * kBytes;
  }
  __device__ std::byte* key(int step, std::byte* keys) const {
    return keys + (head(step) - params_.heads) * params_.key.head_stride_bytes;
  }

  __device__ int partner_bytes(int vector) const {
    return vector * params_.rope_dim / 2 * kBytes;
  }
  __device__ void load(const std::byte* row, Raw& raw) const {
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) raw[v] = X::load(row + partner_bytes(v));
  }
  __device__ void store(const Raw& raw, const float (&cosines)[Config::kPairs],
                        const float (&sines)[Config::kPairs], std::byte* row) const {
    float values[Config::kVectors][kVec8];
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) X::decode(raw[v], values[v]);
    rotate<Config>(values, cosines, sines);
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) {
      store_vec8<Config::kX>(row + partner_bytes(v), values[v]);
    }
  }

  // The columns of q that are not rotated, for the chunk's heads.
  __device__ void copy_rest() const {
    const int rest = (params_.head_dim - params_.rope_dim) / kVec8;
    const int first = params_.interleaved ? 0 : params_.rope_dim;
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

  const RopeParams& params_;
  int rows_;    // of a warp at a time
  int row_;     // this lane's; rows_ and beyond: none
  int column_;  // of its first vector, from the first rotated one
  std::int64_t token_ = 0;
  int first_head_ = 0;
};

template <typename Config>
__global__ void __launch_bounds__(kThreads, Config::kBlocksPerSm)
    rotate_vectors(const __grid_constant__ RopeParams params,
                   const __grid_constant__ ChunkShare share) {
  TokenWalk walk(params, share);
  TokenRotation<Config> rotation(params);
  while (walk.advance()) rotation.run(walk);
}

template <typename Config>
void launch_config(const RopeParams& params, int sms, cudaStream_t stream) {
  const int per_chunk = TokenRotation<Config>::heads_per_chunk(params.rope_dim);
  const int chunks = (params.heads + params.key_heads + per_chunk - 1) / per_chunk;
  const std::int64_t blocks = std::min<std::int64_t>(
      Config::kBlocksPerSm * sms, num_blocks(params.tokens * chunks * kWarp, kThreads));
  launch(rotate_vectors<Config>,
         {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)}, stream, params,
         ChunkShare{.per_token = Divisor(static_cast<unsigned>(chunks)),
                    .chunks = static_cast<int>(params.tokens * chunks)});
}

template <DType kX, VectorPairing kPairing>
void launch_table(const RopeParams& params, int sms, cudaStream_t stream) {
  if (params.angles.stand_in_rows()) {
    return launch_config<RopeConfig<kX, kPairing, AngleTable::rows>>(params, sms, stream);
  }
  launch_config<RopeConfig<kX, kPairing, AngleTable::any>>(params, sms, stream);
}

template <DType kX> void launch_for(const RopeParams& params, int sms, cudaStream_t stream) {
  if (params.interleaved) return launch_table<kX, VectorPairing::interleaved>(params, sms, stream);
  launch_table<kX, VectorPairing::half_split>(params, sms, stream);
}

}  // namespace

void launch_vectors(const RopeParams& params, int sms, cudaStream_t stream) {
  if (params.q_dtype == DType::bf16) return launch_for<DType::bf16>(params, sms, stream);
  if (params.q_dtype == DType::f16) return launch_for<DType::f16>(params, sms, stream);
  launch_for<DType::f32>(params, sms, stream);
}

}  // namespace quire::cuda::any::rope
