// SPDX-License-Identifier: Apache-2.0
// Rows of 16-bit numbers on their way into fp8, with a scale for every granule of their own or none; columns after
// them that keep their type are copied. A block takes whole tokens; neighbouring lanes hold a granule.
#include <algorithm>

#include "cuda/hopper/store/params.h"
#include "cuda/rows/granule_coder.cuh"
#include "cuda/rows/largest.cuh"
#include "cuda/rows/token_finder.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 256;  // that code; a warp beside them looks up places
constexpr int kWarp = 32;
constexpr int kBlocksPerSm = 3;
constexpr int kMostTokens = 64;

enum class Scaling : std::uint8_t { none, granules };

// Coded ones of a thread, by the registers there are for them; one more is copied.
constexpr int most_vectors(Scaling scaling) {
  return scaling == Scaling::granules ? 3 : 4;
}

template <DType kXType, DType kCodedType, Scaling kRule> struct CodeConfig {
  static constexpr DType kX = kXType;
  static constexpr DType kCoded = kCodedType;
  static constexpr Scaling kScaling = kRule;
  static constexpr int kVectors = most_vectors(kRule);
};

// Where a token's rows and scales begin; null: nowhere.
struct TokenTarget {
  std::byte* row;
  std::byte* scale;
};

// The vectors of a thread: the same row and column of every `step`-th token of the block.
struct ThreadRun {
  unsigned token;  // the first; past all of them where the thread has none
  unsigned step;
  std::uint16_t row;  // of the token
  std::uint16_t vector;

  __device__ ThreadRun(const VectorRun& run, unsigned first_row, unsigned rows, unsigned num_rows) {
    const unsigned per_token = rows * run.per_row.value();
    step = run.is_used ? kThreads / per_token : 0;
    token = threadIdx.x / per_token;
    const unsigned in_token = threadIdx.x - token * per_token;
    const unsigned own = run.per_row.quotient(in_token);
    row = static_cast<std::uint16_t>(first_row + own);
    vector = static_cast<std::uint16_t>(in_token - own * run.per_row.value());
    if (token >= step || first_row + own >= num_rows) token = kNone;
  }

  static constexpr unsigned kNone = 0x40000000;
};

// What a block takes at a time: neighbouring tokens.
struct Chunk {
  std::int64_t first_token;
  unsigned tokens;  // 0: past the last chunk

  __device__ Chunk(const StoreParams& params, const CodeLayout& layout, unsigned index) {
    first_token = std::int64_t{index} * layout.block_tokens;
    const std::int64_t left = params.tokens - first_token;
    tokens = left <= 0                    ? 0
             : left < layout.block_tokens ? static_cast<unsigned>(left)
                                          : layout.block_tokens;
  }
};

template <typename Config> class TokenCoder {
 public:
  __device__ TokenCoder(const StoreParams& params, const CodeLayout& layout)
      : params_(params),
        layout_(layout),
        coded_(layout.coded, blockIdx.y * layout.block_rows, layout.block_rows,
               static_cast<unsigned>(params.view.num_heads)),
        copied_(layout.copied, blockIdx.y * layout.block_rows, layout.block_rows,
                static_cast<unsigned>(params.view.num_heads)) {}

  __device__ void load(const Chunk& chunk) {
    const std::byte* from = source(chunk, layout_.coded, coded_);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) < chunk.tokens) raw_[i] = load_vector(from + i * step());
    }
    load_copied(chunk);
  }

  // Codes and stores a chunk; the next one is on its way as soon as this one is coded. All lanes take
  // part in the maxima.
  __device__ void store(const TokenTarget* targets, const Chunk& chunk, const Chunk& next) {
    typename Amax::Value amax[kVectors];
    if constexpr (Config::kScaling == Scaling::granules) find_largest(amax);
    GranuleCodes codes[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) < chunk.tokens) codes[i] = encode(raw_[i], amax[i]);
    }
    if (copied_.token < chunk.tokens) store_copied(targets[copied_.token], copied_raw_);
    load(next);  // before the other stores: behind them it waits, a tenth of all the time
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) < chunk.tokens) store_codes(targets[token(i)], codes[i]);
    }
  }

 private:
  static constexpr int kVectors = Config::kVectors;
  using X = Eight<Config::kX>;
  using Amax = Largest<Config::kX>;
  using Coder = GranuleCoder<Config::kX, Config::kCoded>;

  __device__ unsigned token(int i) const {
    return coded_.token + i * coded_.step;
  }
  __device__ std::int64_t step() const {
    return coded_.step * params_.token_stride_bytes;
  }

  __device__ const std::byte* source(const Chunk& chunk, const VectorRun& run,
                                     const ThreadRun& own) const {
    return params_.x + (chunk.first_token + own.token) * params_.token_stride_bytes +
           own.row * params_.head_stride_bytes + run.x_offset_bytes + own.vector * sizeof(uint4);
  }
  __device__ static uint4 load_vector(const std::byte* from) {
    return __ldcs(reinterpret_cast<const uint4*>(from));
  }
  __device__ void load_copied(const Chunk& chunk) {
    if (copied_.token < chunk.tokens) {
      copied_raw_ = load_vector(source(chunk, layout_.copied, copied_));
    }
  }

  __device__ void find_largest(typename Amax::Value (&amax)[kVectors]) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) amax[i] = Amax::of(raw_[i]);
    for (unsigned step = 1u << layout_.granule_shift >> 1; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        amax[i] = Amax::merge(amax[i], Amax::exchange(amax[i], step));
      }
    }
  }

  __device__ static GranuleCodes encode(const uint4& raw, const typename Amax::Value& amax) {
    if constexpr (Config::kScaling == Scaling::granules) {
      return Coder::encode(raw, Amax::magnitude(amax));
    } else {
      float values[kEight];
      X::decode(raw, values);
      constexpr auto kFormat = Config::kCoded == DType::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2;
      return {encode_fp8<kFormat>(values), 1.0f};
    }
  }

  __device__ void store_codes(const TokenTarget& target, const GranuleCodes& codes) const {
    if (target.row == nullptr) return;
    std::byte* row = target.row + coded_.row * params_.view.head_stride_bytes;
    reinterpret_cast<uint2*>(row + layout_.coded.offset_bytes)[coded_.vector] = codes.codes;
    if constexpr (Config::kScaling == Scaling::granules) store_scale(target.scale, codes.scale);
  }
  __device__ void store_scale(std::byte* scales, float scale) const {
    const unsigned granule = coded_.vector >> layout_.granule_shift;
    if (scales == nullptr || granule << layout_.granule_shift != coded_.vector) return;
    scales += coded_.row * layout_.scale_head_bytes + layout_.scale_offset_bytes +
              granule * layout_.scale_slot_bytes;
    *reinterpret_cast<float*>(scales) = scale;
  }
  __device__ void store_copied(const TokenTarget& target, const uint4& raw) const {
    if (target.row == nullptr) return;
    std::byte* row = target.row + copied_.row * params_.view.head_stride_bytes;
    reinterpret_cast<uint4*>(row + layout_.copied.offset_bytes)[copied_.vector] = raw;
  }

  const StoreParams& params_;
  const CodeLayout& layout_;
  ThreadRun coded_;
  ThreadRun copied_;
  uint4 raw_[kVectors] = {};
  uint4 copied_raw_ = {};
};

// A warp: the places of a chunk's tokens, a lane for each.
template <typename Config>
__device__ void find_targets(const StoreParams& params, const CodeLayout& layout,
                             const TokenFinder& finder, const Chunk& chunk, TokenTarget* targets) {
  for (unsigned first = 0; first < chunk.tokens; first += kWarp) {
    const unsigned own = first + threadIdx.x % kWarp;
    const TokenPlace place = finder.find(chunk.first_token + own);
    if (own >= chunk.tokens) continue;
    TokenTarget target{first_row(params.view, place), nullptr};
    if (layout.scales_are_in_row) {
      target.scale = target.row;
    } else if (Config::kScaling == Scaling::granules) {
      target.scale = first_scale(params.view, place);
    }
    targets[own] = target;
  }
}

// Blocks stay and take every gridDim.x-th chunk. The places of a chunk are looked up, and its rows are on
// their way, while the chunk before it is coded: a block for each chunk waits for both, one after the
// other, at its start.
template <typename Config>
__global__ void __launch_bounds__(kThreads + kWarp, kBlocksPerSm)
    code_tokens(const __grid_constant__ StoreParams params,
                const __grid_constant__ CodeLayout layout) {
  __shared__ TokenTarget targets[2][kMostTokens];
  unsigned index = blockIdx.x;
  Chunk chunk(params, layout, index);
  if (threadIdx.x >= kThreads) {
    const TokenFinder finder(params.row_offsets, params.view.cache_lengths, params.view.batch);
    find_targets<Config>(params, layout, finder, chunk, targets[0]);
    for (int turn = 1; chunk.tokens > 0; turn ^= 1) {
      __syncthreads();
      chunk = Chunk(params, layout, index += gridDim.x);
      find_targets<Config>(params, layout, finder, chunk, targets[turn]);
    }
    return;
  }
  TokenCoder<Config> coder(params, layout);
  coder.load(chunk);
  for (int turn = 0; chunk.tokens > 0; turn ^= 1) {
    __syncthreads();  // the chunk's targets are there, those of the chunk before it are not needed
    const Chunk next(params, layout, index += gridDim.x);
    coder.store(targets[turn], chunk, next);
    chunk = next;
  }
}

template <DType kX, DType kCoded>
void launch_for(const StoreParams& params, const CodeLayout& layout, int sms, cudaStream_t stream) {
  const unsigned chunks = num_blocks(params.tokens, layout.block_tokens);
  const unsigned columns = num_blocks(params.view.num_heads, layout.block_rows);
  const unsigned resident = std::max(1u, static_cast<unsigned>(sms * kBlocksPerSm) / columns);
  const LaunchShape shape{.grid = dim3(std::min(chunks, resident), columns),
                          .block = dim3(kThreads + kWarp)};
  if (layout.has_scales) {
    return launch(code_tokens<CodeConfig<kX, kCoded, Scaling::granules>>, shape, stream, params,
                  layout);
  }
  launch(code_tokens<CodeConfig<kX, kCoded, Scaling::none>>, shape, stream, params, layout);
}

template <DType kX>
void launch_for_x(const StoreParams& params, const CodeLayout& layout, int sms,
                  cudaStream_t stream) {
  if (params.view.row_format.parts[0].dtype == DType::fp8_e4m3) {
    return launch_for<kX, DType::fp8_e4m3>(params, layout, sms, stream);
  }
  launch_for<kX, DType::fp8_e5m2>(params, layout, sms, stream);
}

}  // namespace

BlockSize block_size(unsigned rows, unsigned coded_vectors, unsigned copied_vectors,
                     bool has_scales) {
  const unsigned most_rows = kThreads / std::max(coded_vectors, copied_vectors);
  if (most_rows == 0) return {.rows = 1, .tokens = 0};
  const unsigned taken = std::min(rows, most_rows);
  const int vectors = most_vectors(has_scales ? Scaling::granules : Scaling::none);
  const unsigned coded = kThreads / (taken * coded_vectors) * vectors;
  const unsigned copied = copied_vectors == 0 ? kMostTokens : kThreads / (taken * copied_vectors);
  return {.rows = taken, .tokens = std::min({coded, copied, static_cast<unsigned>(kMostTokens)})};
}

void launch_code(const StoreParams& params, const CodeLayout& layout, int sms,
                 cudaStream_t stream) {
  if (params.x_dtype == DType::bf16) return launch_for_x<DType::bf16>(params, layout, sms, stream);
  launch_for_x<DType::f16>(params, layout, sms, stream);
}

}  // namespace quire::cuda::hopper
