// SPDX-License-Identifier: Apache-2.0
// A warp rotates up to kSteps rows per lane group of one token: the angles are loaded once and serve
// every head, q's first and then the key's.
#include "cuda/hopper/rope/angles.cuh"
#include "cuda/rows/divisor.h"
#include "cuda/rows/eight.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kSteps = 4;

enum class Pairing : std::uint8_t { half_split, interleaved };

template <DType kXType, Pairing kPairsStand> struct RopeConfig {
  static constexpr DType kX = kXType;
  static constexpr Pairing kPairing = kPairsStand;
  static constexpr bool kIsSplit = kPairing == Pairing::half_split;
  static constexpr int kPairs = kIsSplit ? kEight : kEight / 2;  // of a lane
  static constexpr int kVectors = kIsSplit ? 2 : 1;              // of a lane and row
};

// Half-split: a in one vector, b in the other. Interleaved: a and b take turns.
template <typename Config>
__device__ void rotate(float (&values)[Config::kVectors][kEight],
                       const float (&cosines)[Config::kPairs],
                       const float (&sines)[Config::kPairs]) {
#pragma unroll
  for (int j = 0; j < Config::kPairs; ++j) {
    float& a = Config::kIsSplit ? values[0][j] : values[0][2 * j % kEight];
    float& b = Config::kIsSplit ? values[Config::kVectors - 1][j] : values[0][(2 * j + 1) % kEight];
    rotate_pair(a, b, cosines[j], sines[j]);
  }
}

struct RowPointers {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
};

template <typename Config> class TokenRotation {
 public:
  using X = Eight<Config::kX>;
  using Raw = typename X::Raw[kSteps][Config::kVectors];

  __device__ TokenRotation(const RopeParams& params, std::int64_t token, int chunk)
      : params_(params), token_(token), lanes_(params.rope_dim / 2 / Config::kPairs) {
    const int lane = threadIdx.x % kWarp;
    rows_ = kWarp / lanes_;
    row_ = lane / lanes_;
    column_ = lane % lanes_ * kEight;
    first_head_ = chunk * rows_ * kSteps;
    last_head_ = min(first_head_ + rows_ * kSteps, params.heads + params.key_heads);
  }

  static __host__ __device__ int heads_per_chunk(int rope_dim) {
    return kWarp / (rope_dim / 2 / Config::kPairs) * kSteps;
  }

  __device__ void run() const {
    // q's rows are on their way before the token is looked up.
    RowPointers rows[kSteps];
    Raw raw = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) rows[s] = query_row(s);
    load(rows, raw);
    const TokenPlace place =
        place_of_token(params_.row_offsets, params_.key.cache_lengths, params_.key.batch, token_);
    if (!place.exists()) return;
    float cosines[Config::kPairs];
    float sines[Config::kPairs];
    if (is_active()) {
      load_angles(params_.angles, token_, place.position, column_ / kEight * Config::kPairs,
                  cosines, sines);
    }
    load_keys(place, rows, raw);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (rows[s].target == nullptr) continue;
      float values[Config::kVectors][kEight];
#pragma unroll
      for (int v = 0; v < Config::kVectors; ++v) X::decode(raw[s][v], values[v]);
      rotate<Config>(values, cosines, sines);
#pragma unroll
      for (int v = 0; v < Config::kVectors; ++v) {
        store_eight<Config::kX>(rows[s].target + vector_bytes(v), values[v]);
      }
    }
    if (params_.out != params_.q) copy_rest();
  }

 private:
  static constexpr int kBytes = bits(Config::kX) / 8;

  __device__ bool is_active() const {
    return row_ < rows_;
  }
  __device__ int head(int step) const {
    return first_head_ + step * rows_ + row_;
  }
  // Bytes from a row's first rotated column to the lane's vector v.
  __device__ std::int64_t vector_bytes(int v) const {
    return (column_ + v * params_.rope_dim / 2) * kBytes;
  }

  __device__ RowPointers query_row(int step) const {
    if (!is_active() || head(step) >= params_.heads) return {};
    const int skipped = params_.first_column(params_.head_dim) * kBytes;
    return {
        params_.q + token_ * params_.q_token_bytes + head(step) * params_.q_head_bytes + skipped,
        params_.out + token_ * params_.out_token_bytes + head(step) * params_.out_head_bytes +
            skipped};
  }

  __device__ void load(const RowPointers (&rows)[kSteps], Raw& raw) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (rows[s].source == nullptr) continue;
#pragma unroll
      for (int v = 0; v < Config::kVectors; ++v) {
        raw[s][v] = X::load(rows[s].source + vector_bytes(v));
      }
    }
  }

  __device__ void load_keys(const TokenPlace& place, RowPointers (&rows)[kSteps], Raw& raw) const {
    if (last_head_ <= params_.heads) return;
    const KvLayerView& key = params_.key;
    std::byte* base = first_row(key, place);
    if (base == nullptr) return;
    const RowFormat::Column column =
        key.row_format.locate(params_.first_column(key.row_format.width()));
    base += key.row_format.parts[column.part].offset_bytes + column.index * kBytes;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (!is_active() || head(s) < params_.heads || head(s) >= last_head_) continue;
      rows[s].target = base + (head(s) - params_.heads) * key.head_stride_bytes;
#pragma unroll
      for (int v = 0; v < Config::kVectors; ++v) {
        raw[s][v] = X::load(rows[s].target + vector_bytes(v));
      }
    }
  }

  // The columns of q that are not rotated, for the chunk's heads.
  __device__ void copy_rest() const {
    const int rest = (params_.head_dim - params_.rope_dim) / kEight;
    const int first = params_.interleaved ? 0 : params_.rope_dim;
    const int heads = min(last_head_, params_.heads) - first_head_;
#pragma unroll 4
    for (int i = threadIdx.x % kWarp; i < heads * rest; i += kWarp) {
      const int head = first_head_ + i / rest;
      const int bytes = (first + i % rest * kEight) * kBytes;
      const auto raw =
          X::load(params_.q + token_ * params_.q_token_bytes + head * params_.q_head_bytes + bytes);
      *reinterpret_cast<typename X::Raw*>(params_.out + token_ * params_.out_token_bytes +
                                          head * params_.out_head_bytes + bytes) = raw;
    }
  }

  const RopeParams& params_;
  std::int64_t token_;
  int lanes_;   // that share a row
  int rows_;    // of a warp at a time
  int row_;     // this lane's
  int column_;  // of its first vector, from the first rotated one
  int first_head_;
  int last_head_;
};

template <typename Config>
__global__ void __launch_bounds__(kThreads, 2)
    rotate_vectors(const __grid_constant__ RopeParams params, Divisor chunks) {
  const std::int64_t warp = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const std::int64_t token = chunks.quotient_of(warp);
  if (token >= params.tokens) return;
  TokenRotation<Config>(params, token, static_cast<int>(warp - token * chunks.value())).run();
}

template <typename Config> void launch_config(const RopeParams& params, cudaStream_t stream) {
  const int per_chunk = TokenRotation<Config>::heads_per_chunk(params.rope_dim);
  const int chunks = (params.heads + params.key_heads + per_chunk - 1) / per_chunk;
  launch(
      rotate_vectors<Config>,
      {.grid = dim3(num_blocks(params.tokens * chunks * kWarp, kThreads)), .block = dim3(kThreads)},
      stream, params, Divisor(static_cast<unsigned>(chunks)));
}

template <DType kX> void launch_for(const RopeParams& params, cudaStream_t stream) {
  if (params.interleaved) {
    return launch_config<RopeConfig<kX, Pairing::interleaved>>(params, stream);
  }
  launch_config<RopeConfig<kX, Pairing::half_split>>(params, stream);
}

}  // namespace

void launch_vectors(const RopeParams& params, cudaStream_t stream) {
  if (params.q_dtype == DType::bf16) return launch_for<DType::bf16>(params, stream);
  if (params.q_dtype == DType::f16) return launch_for<DType::f16>(params, stream);
  launch_for<DType::f32>(params, stream);
}

}  // namespace quire::cuda::hopper
