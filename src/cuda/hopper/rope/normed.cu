// SPDX-License-Identifier: Apache-2.0
// Norm and rotation in one pass. A row stays whole in the registers of its lanes: vector v (columns
// 8v to 8v + 7) is in slot v / lanes of lane v % lanes. With half-split pairs lanes = rope_dim / 16,
// so that slots 0 and 1 of a lane hold the two halves of its pairs.
#include "cuda/hopper/rope/angles.cuh"
#include "cuda/hopper/rope/block_tokens.cuh"
#include "cuda/rows/eight.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kWarp = 32;
constexpr int kMostColumns = kWarp * 4 * kEight;

enum class Pairing : std::uint8_t { half_split, interleaved };

template <DType kXType, Pairing kPairsStand, int kLaneSlots> struct NormedConfig {
  static constexpr DType kX = kXType;
  static constexpr bool kIsSplit = kPairsStand == Pairing::half_split;
  static constexpr int kSlots = kLaneSlots;
  // Rows of a lane in flight: 128 bytes of them. With twice as many f32 spills registers.
  static constexpr int kSteps = 128 / (kSlots * kEight * (bits(kX) / 8));
};

// gamma + weight_offset of both sides, in shared memory: every row of the block needs them.
struct Gammas {
  alignas(16) float values[2][kMostColumns];

  __device__ void load(const RopeParams& params) {
    for (int side = 0; side < 2; ++side) {
      const RopeNorm& norm = side == 0 ? params.q_norm : params.key_norm;
      for (int i = static_cast<int>(threadIdx.x); i < norm.columns; i += kRopeThreads) {
        values[side][i] =
            static_cast<float>(load_number(norm.gamma, norm.dtype, i) + params.weight_offset);
      }
    }
  }
};

template <typename Config> class NormedRotation {
 public:
  using X = Eight<Config::kX>;
  using Raw = typename X::Raw[Config::kSlots];

  __device__ NormedRotation(const RopeParams& params, std::int64_t token, int chunk,
                            const Gammas& gammas, int lanes)
      : params_(&params), gammas_(&gammas), token_(token), lanes_(lanes) {
    const int lane = threadIdx.x % kWarp;
    lane_ = lane & (lanes - 1);
    first_head_ = chunk * heads_per_chunk(lanes) + lane / lanes;
  }

  static __host__ __device__ int heads_per_chunk(int lanes) {
    return kWarp / lanes * Config::kSteps;
  }

  __device__ void load_query() {
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      targets_[s] = nullptr;
      if (head(s) >= params_->heads) continue;
      load(params_->q + token_ * params_->q_token_bytes + head(s) * params_->q_head_bytes,
           params_->head_dim, raw_[s]);
      targets_[s] =
          params_->out + token_ * params_->out_token_bytes + head(s) * params_->out_head_bytes;
    }
  }

  // All lanes of the warp stay together: they take part in each other's sums.
  __device__ void finish(const BlockToken& token) {
    if (!token.exists()) return;
    position_ = token.position;
    load_keys(token.keys);
    if constexpr (Config::kIsSplit) {
      load_angles(params_->angles, token_, position_, lane_ * kEight, cosines_, sines_);
    }
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      finish_row(targets_[s], head(s) >= params_->heads, raw_[s]);
    }
  }

 private:
  static constexpr int kBytes = bits(Config::kX) / 8;

  __device__ int head(int step) const {
    return first_head_ + step * (kWarp / lanes_);
  }
  __device__ int column(int slot) const {
    return (slot * lanes_ + lane_) * kEight;
  }
  __device__ int width(bool is_key) const {
    return is_key ? params_->key.row_format.width() : params_->head_dim;
  }
  __device__ int normed_columns(bool is_key) const {
    return is_key ? params_->key_norm.columns : params_->q_norm.columns;
  }
  __device__ bool is_rotated(bool is_key, int slot) const {
    return Config::kIsSplit ? slot < 2 : column(slot) >= width(is_key) - params_->rope_dim;
  }

  __device__ void load(const std::byte* source, int width, Raw& raw) const {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) < width) raw[s] = X::load(source + column(s) * kBytes);
    }
  }

  __device__ void load_keys(std::byte* keys) {
    if (keys == nullptr) return;
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      const int key_head = head(s) - params_->heads;
      if (key_head < 0 || key_head >= params_->key_heads) continue;
      targets_[s] = keys + key_head * params_->key.head_stride_bytes +
                    params_->key.row_format.parts[0].offset_bytes;
      load(targets_[s], width(true), raw_[s]);
    }
  }

  __device__ void finish_row(std::byte* target, bool is_key, const Raw& raw) const {
    float x[Config::kSlots][kEight];
    const int columns = normed_columns(is_key);
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      X::decode(raw[s], x[s]);
      if (column(s) >= columns) continue;
#pragma unroll
      for (int i = 0; i < kEight; ++i) sum = fmaf(x[s][i], x[s][i], sum);
    }
    for (int step = lanes_ / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (target == nullptr) return;
    const float mean = sum * __frcp_rn(static_cast<float>(columns));
    const float factor = __frsqrt_rn(mean + static_cast<float>(params_->epsilon));
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) < columns) scale(gammas_->values[is_key ? 1 : 0], factor, s, x[s]);
    }
    rotate(is_key, x);
    store(target, is_key, raw, x);
  }

  __device__ void scale(const float* gamma, float factor, int slot, float (&values)[kEight]) const {
    float weights[kEight];
    load_eight(reinterpret_cast<const std::byte*>(gamma + column(slot)), DType::f32, weights);
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] *= factor * weights[i];
  }

  __device__ void rotate(bool is_key, float (&x)[Config::kSlots][kEight]) const {
    if constexpr (Config::kIsSplit) {
#pragma unroll
      for (int j = 0; j < kEight; ++j) rotate_pair(x[0][j], x[1][j], cosines_[j], sines_[j]);
    } else {
#pragma unroll
      for (int s = 0; s < Config::kSlots; ++s) {
        const int first = column(s) - (width(is_key) - params_->rope_dim);
        if (first < 0 || column(s) >= width(is_key)) continue;
        float cosines[kEight / 2];
        float sines[kEight / 2];
        load_angles(params_->angles, token_, position_, first / 2, cosines, sines);
#pragma unroll
        for (int j = 0; j < kEight / 2; ++j) {
          rotate_pair(x[s][2 * j], x[s][2 * j + 1], cosines[j], sines[j]);
        }
      }
    }
  }

  // Columns that do not change keep their bits; in a key they are not even written.
  __device__ void store(std::byte* row, bool is_key, const Raw& raw,
                        const float (&x)[Config::kSlots][kEight]) const {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) >= width(is_key)) continue;
      auto* target = reinterpret_cast<typename X::Raw*>(row + column(s) * kBytes);
      if (column(s) < normed_columns(is_key) || is_rotated(is_key, s)) {
        *target = X::encode(x[s]);
      } else if (!is_key) {
        *target = raw[s];
      }
    }
  }

  const RopeParams* params_;
  const Gammas* gammas_;
  std::int64_t token_;
  std::int64_t position_ = 0;
  int lanes_;                           // that share a row, a power of two
  int lane_;                            // among those of its row
  int first_head_;                      // q's heads, then the key's
  std::byte* targets_[Config::kSteps];  // null: none
  Raw raw_[Config::kSteps] = {};
  float cosines_[kEight] = {};  // half-split: of the lane's pairs
  float sines_[kEight] = {};
};

template <typename Config>
__global__ void __launch_bounds__(kRopeThreads, 2)
    normalize_and_rotate(const __grid_constant__ RopeParams params,
                         const __grid_constant__ RopeGrid grid, int lanes) {
  __shared__ Gammas gammas;
  gammas.load(params);
  rotate_block<NormedRotation<Config>>(params, grid, gammas, lanes);
}

template <typename Config>
void launch_config(const RopeParams& params, const RopeLaunch& where, int lanes) {
  const RopeGrid grid =
      rope_grid(params, NormedRotation<Config>::heads_per_chunk(lanes), where.num_sms);
  launch(normalize_and_rotate<Config>,
         {.grid = dim3(num_blocks(params.tokens, grid.block_tokens)), .block = dim3(kRopeThreads)},
         where.stream, params, grid, lanes);
}

template <DType kX, Pairing kPairing>
void launch_slots(const RopeParams& params, const NormedLayout& layout, const RopeLaunch& where) {
  if (layout.slots <= 2) {
    return launch_config<NormedConfig<kX, kPairing, 2>>(params, where, layout.lanes);
  }
  launch_config<NormedConfig<kX, kPairing, 4>>(params, where, layout.lanes);
}

template <DType kX>
void launch_for(const RopeParams& params, const NormedLayout& layout, const RopeLaunch& where) {
  if (params.interleaved) return launch_slots<kX, Pairing::interleaved>(params, layout, where);
  launch_slots<kX, Pairing::half_split>(params, layout, where);
}

}  // namespace

void launch_normed(const RopeParams& params, const NormedLayout& layout, const RopeLaunch& where) {
  if (params.q_dtype == DType::bf16) return launch_for<DType::bf16>(params, layout, where);
  if (params.q_dtype == DType::f16) return launch_for<DType::f16>(params, layout, where);
  launch_for<DType::f32>(params, layout, where);
}

}  // namespace quire::cuda::hopper
