// SPDX-License-Identifier: Apache-2.0
// Norm and rotation in one pass. A row stays whole in the registers of its lanes: vector v (columns
// 8v to 8v + 7) is in slot v / lanes of lane v % lanes. With half-split pairs lanes = rope_dim / 16,
// so that slots 0 and 1 of a lane hold the two halves of its pairs.
#include "cuda/hopper/rope/angles.cuh"
#include "cuda/rows/any_eight.cuh"
#include "cuda/rows/divisor.h"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

enum class Pairing : std::uint8_t { half_split, interleaved };

template <DType kXType, Pairing kPairsStand, int kLaneSlots> struct NormedConfig {
  static constexpr DType kX = kXType;
  static constexpr bool kIsSplit = kPairsStand == Pairing::half_split;
  static constexpr int kSlots = kLaneSlots;
  // Rows of a lane in flight: 128 bytes of them. With twice as many f32 spills registers.
  static constexpr int kSteps = 128 / (kSlots * kEight * (bits(kX) / 8));
};

struct Row {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  bool is_key = false;
};

template <typename Config> class NormedRotation {
 public:
  using X = Eight<Config::kX>;
  using Raw = typename X::Raw[Config::kSlots];

  __device__ NormedRotation(const RopeParams& params, int lanes, std::int64_t token, int chunk)
      : params_(params), token_(token), lanes_(lanes) {
    const int lane = threadIdx.x % kWarp;
    lane_ = lane & (lanes - 1);
    first_head_ = chunk * heads_per_chunk(lanes) + lane / lanes;
  }

  static __host__ __device__ int heads_per_chunk(int lanes) {
    return kWarp / lanes * Config::kSteps;
  }

  // All lanes of the warp stay together: they take part in each other's sums.
  __device__ void run() {
    Row rows[Config::kSteps];
    Raw raw[Config::kSteps] = {};
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      rows[s] = query_row(head(s));
      load(rows[s], raw[s]);
    }
    const TokenPlace place =
        place_of_token(params_.row_offsets, params_.key.cache_lengths, params_.key.batch, token_);
    if (!place.exists()) return;
    position_ = place.position;
    std::byte* keys = first_row(params_.key, place);
    if constexpr (Config::kIsSplit) {
      load_angles(params_.angles, token_, position_, lane_ * kEight, cosines_, sines_);
    }
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) {
      if (head(s) < params_.heads) continue;
      rows[s] = key_row(keys, head(s) - params_.heads);
      load(rows[s], raw[s]);
    }
#pragma unroll
    for (int s = 0; s < Config::kSteps; ++s) finish(rows[s], raw[s]);
  }

 private:
  static constexpr int kBytes = bits(Config::kX) / 8;

  __device__ int head(int step) const {
    return first_head_ + step * (kWarp / lanes_);
  }
  __device__ int column(int slot) const {
    return (slot * lanes_ + lane_) * kEight;
  }
  __device__ int width(const Row& row) const {
    return row.is_key ? params_.key.row_format.width() : params_.head_dim;
  }
  __device__ const RopeNorm& norm(const Row& row) const {
    return row.is_key ? params_.key_norm : params_.q_norm;
  }
  __device__ bool is_rotated(const Row& row, int slot) const {
    return Config::kIsSplit ? slot < 2 : column(slot) >= width(row) - params_.rope_dim;
  }

  __device__ Row query_row(int head) const {
    if (head >= params_.heads) return {};
    return {params_.q + token_ * params_.q_token_bytes + head * params_.q_head_bytes,
            params_.out + token_ * params_.out_token_bytes + head * params_.out_head_bytes, false};
  }
  __device__ Row key_row(std::byte* keys, int head) const {
    if (keys == nullptr || head >= params_.key_heads) return {nullptr, nullptr, true};
    std::byte* row =
        keys + head * params_.key.head_stride_bytes + params_.key.row_format.parts[0].offset_bytes;
    return {row, row, true};
  }

  __device__ void load(const Row& row, Raw& raw) const {
    if (row.source == nullptr) return;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) < width(row)) raw[s] = X::load(row.source + column(s) * kBytes);
    }
  }

  __device__ void finish(const Row& row, const Raw& raw) const {
    float x[Config::kSlots][kEight];
    const int columns = norm(row).columns;
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      X::decode(raw[s], x[s]);
#pragma unroll
      for (int i = 0; i < kEight; ++i)
        sum = column(s) < columns ? fmaf(x[s][i], x[s][i], sum) : sum;
    }
    for (int step = lanes_ / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (row.target == nullptr) return;
    const float mean = sum / static_cast<float>(columns);
    const float factor = __frsqrt_rn(mean + static_cast<float>(params_.epsilon));
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) < columns) scale(norm(row), column(s), factor, x[s]);
    }
    rotate(row, x);
    store(row, raw, x);
  }

  __device__ void scale(const RopeNorm& norm, int column, float factor,
                        float (&values)[kEight]) const {
    float gamma[kEight];
    load_eight(norm.gamma + column * (bits(norm.dtype) / 8), norm.dtype, gamma);
    const auto offset = static_cast<float>(params_.weight_offset);
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] = values[i] * factor * (gamma[i] + offset);
  }

  __device__ void rotate(const Row& row, float (&x)[Config::kSlots][kEight]) const {
    if constexpr (Config::kIsSplit) {
#pragma unroll
      for (int j = 0; j < kEight; ++j) rotate_pair(x[0][j], x[1][j], cosines_[j], sines_[j]);
    } else {
#pragma unroll
      for (int s = 0; s < Config::kSlots; ++s) {
        const int first = column(s) - (width(row) - params_.rope_dim);
        if (first < 0 || column(s) >= width(row)) continue;
        float cosines[kEight / 2];
        float sines[kEight / 2];
        load_angles(params_.angles, token_, position_, first / 2, cosines, sines);
#pragma unroll
        for (int j = 0; j < kEight / 2; ++j) {
          rotate_pair(x[s][2 * j], x[s][2 * j + 1], cosines[j], sines[j]);
        }
      }
    }
  }

  // Columns that do not change keep their bits; in a key they are not even written.
  __device__ void store(const Row& row, const Raw& raw,
                        const float (&x)[Config::kSlots][kEight]) const {
#pragma unroll
    for (int s = 0; s < Config::kSlots; ++s) {
      if (column(s) >= width(row)) continue;
      auto* target = reinterpret_cast<typename X::Raw*>(row.target + column(s) * kBytes);
      if (column(s) < norm(row).columns || is_rotated(row, s)) {
        *target = X::encode(x[s]);
      } else if (!row.is_key) {
        *target = raw[s];
      }
    }
  }

  const RopeParams& params_;
  std::int64_t token_;
  std::int64_t position_ = 0;
  int lanes_;
  int lane_;                    // among those of its row
  int first_head_;              // q's heads, then the key's
  float cosines_[kEight] = {};  // half-split: of the lane's pairs
  float sines_[kEight] = {};
};

template <typename Config>
__global__ void __launch_bounds__(kThreads, 2)
    normalize_and_rotate(const __grid_constant__ RopeParams params, int lanes, Divisor chunks) {
  const std::int64_t warp = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
  const std::int64_t token = chunks.quotient_of(warp);
  if (token >= params.tokens) return;
  NormedRotation<Config>(params, lanes, token, static_cast<int>(warp - token * chunks.value()))
      .run();
}

template <typename Config>
void launch_config(const RopeParams& params, int lanes, cudaStream_t stream) {
  const int per_chunk = NormedRotation<Config>::heads_per_chunk(lanes);
  const int chunks = (params.heads + params.key_heads + per_chunk - 1) / per_chunk;
  launch(
      normalize_and_rotate<Config>,
      {.grid = dim3(num_blocks(params.tokens * chunks * kWarp, kThreads)), .block = dim3(kThreads)},
      stream, params, lanes, Divisor(static_cast<unsigned>(chunks)));
}

template <DType kX, Pairing kPairing>
void launch_slots(const RopeParams& params, const NormedLayout& layout, cudaStream_t stream) {
  if (layout.slots <= 2) {
    return launch_config<NormedConfig<kX, kPairing, 2>>(params, layout.lanes, stream);
  }
  launch_config<NormedConfig<kX, kPairing, 4>>(params, layout.lanes, stream);
}

template <DType kX>
void launch_for(const RopeParams& params, const NormedLayout& layout, cudaStream_t stream) {
  if (params.interleaved) return launch_slots<kX, Pairing::interleaved>(params, layout, stream);
  launch_slots<kX, Pairing::half_split>(params, layout, stream);
}

}  // namespace

void launch_normed(const RopeParams& params, const NormedLayout& layout, cudaStream_t stream) {
  if (params.q_dtype == DType::bf16) return launch_for<DType::bf16>(params, layout, stream);
  if (params.q_dtype == DType::f16) return launch_for<DType::f16>(params, layout, stream);
  launch_for<DType::f32>(params, layout, stream);
}

}  // namespace quire::cuda::hopper
