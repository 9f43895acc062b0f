// SPDX-License-Identifier: Apache-2.0
// A warp rotates up to kSteps rows per lane group of one token: the angles are loaded once and serve
// every head, q's first and then the key's.
#include "cuda/hopper/rope/angles.cuh"
#include "cuda/hopper/rope/block_tokens.cuh"
#include "cuda/rows/eight.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

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

template <typename Config> class TokenRotation {
 public:
  using X = Eight<Config::kX>;

  __device__ TokenRotation(const RopeParams& params, std::int64_t token, int chunk)
      : params_(&params), token_(token), lanes_(params.rope_dim / 2 / Config::kPairs) {
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

  __device__ void load_query() {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      targets_[s] = nullptr;
      if (!is_active() || head(s) >= params_->heads) continue;
      const int skipped = params_->first_column(params_->head_dim) * kBytes;
      load(params_->q + token_ * params_->q_token_bytes + head(s) * params_->q_head_bytes + skipped,
           raw_[s]);
      targets_[s] = params_->out + token_ * params_->out_token_bytes +
                    head(s) * params_->out_head_bytes + skipped;
    }
  }

  __device__ void finish(const BlockToken& token) {
    if (!token.exists()) return;
    load_keys(token.keys);
    float cosines[Config::kPairs];
    float sines[Config::kPairs];
    if (is_active()) {
      load_angles(params_->angles, token_, token.position, column_ / kEight * Config::kPairs,
                  cosines, sines);
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (targets_[s] == nullptr) continue;
      float values[Config::kVectors][kEight];
#pragma unroll
      for (int v = 0; v < Config::kVectors; ++v) X::decode(raw_[s][v], values[v]);
      rotate<Config>(values, cosines, sines);
#pragma unroll
      for (int v = 0; v < Config::kVectors; ++v) {
        store_eight<Config::kX>(targets_[s] + vector_bytes(v), values[v]);
      }
    }
    if (params_->out != params_->q) copy_rest();
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
    return (column_ + v * params_->rope_dim / 2) * kBytes;
  }

  __device__ void load(const std::byte* source, typename X::Raw (&raw)[Config::kVectors]) const {
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) raw[v] = X::load(source + vector_bytes(v));
  }

  __device__ void load_keys(std::byte* base) {
    if (base == nullptr || last_head_ <= params_->heads) return;
    const KvLayerView& key = params_->key;
    const RowFormat::Column column =
        key.row_format.locate(params_->first_column(key.row_format.width()));
    base += key.row_format.parts[column.part].offset_bytes + column.index * kBytes;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (!is_active() || head(s) < params_->heads || head(s) >= last_head_) continue;
      targets_[s] = base + (head(s) - params_->heads) * key.head_stride_bytes;
      load(targets_[s], raw_[s]);
    }
  }

  // The columns of q that are not rotated, for the chunk's heads.
  __device__ void copy_rest() const {
    const int rest = (params_->head_dim - params_->rope_dim) / kEight;
    const int first = params_->interleaved ? 0 : params_->rope_dim;
    const int heads = min(last_head_, params_->heads) - first_head_;
#pragma unroll 4
    for (int i = threadIdx.x % kWarp; i < heads * rest; i += kWarp) {
      const int head = first_head_ + i / rest;
      const int bytes = (first + i % rest * kEight) * kBytes;
      const auto raw = X::load(params_->q + token_ * params_->q_token_bytes +
                               head * params_->q_head_bytes + bytes);
      *reinterpret_cast<typename X::Raw*>(params_->out + token_ * params_->out_token_bytes +
                                          head * params_->out_head_bytes + bytes) = raw;
    }
  }

  const RopeParams* params_;
  std::int64_t token_;
  int lanes_;   // that share a row
  int rows_;    // of a warp at a time
  int row_;     // this lane's
  int column_;  // of its first vector, from the first rotated one
  int first_head_;
  int last_head_;
  std::byte* targets_[kSteps];  // of q's rows and of the key's, null: none
  typename X::Raw raw_[kSteps][Config::kVectors] = {};
};

template <typename Config>
__global__ void __launch_bounds__(kRopeThreads, 2)
    rotate_vectors(const __grid_constant__ RopeParams params,
                   const __grid_constant__ RopeGrid grid) {
  rotate_block<TokenRotation<Config>>(params, grid);
}

template <typename Config> void launch_config(const RopeParams& params, const RopeLaunch& where) {
  const RopeGrid grid =
      rope_grid(params, TokenRotation<Config>::heads_per_chunk(params.rope_dim), where.num_sms);
  launch(rotate_vectors<Config>,
         {.grid = dim3(num_blocks(params.tokens, grid.block_tokens)), .block = dim3(kRopeThreads)},
         where.stream, params, grid);
}

template <DType kX> void launch_for(const RopeParams& params, const RopeLaunch& where) {
  if (params.interleaved) {
    return launch_config<RopeConfig<kX, Pairing::interleaved>>(params, where);
  }
  launch_config<RopeConfig<kX, Pairing::half_split>>(params, where);
}

}  // namespace

void launch_vectors(const RopeParams& params, const RopeLaunch& where) {
  if (params.q_dtype == DType::bf16) return launch_for<DType::bf16>(params, where);
  if (params.q_dtype == DType::f16) return launch_for<DType::f16>(params, where);
  launch_for<DType::f32>(params, where);
}

}  // namespace quire::cuda::hopper
