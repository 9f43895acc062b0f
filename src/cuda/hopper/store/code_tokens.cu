// SPDX-License-Identifier: Apache-2.0
// Rows of 16-bit numbers on their way into fp8, with a scale for every granule of their own or none; columns after
// them that keep their type are copied. A block takes whole tokens; neighbouring lanes hold a granule.
#include <algorithm>

#include "cuda/hopper/store/code_targets.cuh"
#include "cuda/rows/granule_coder.cuh"
#include "cuda/rows/largest.cuh"
#include "cuda/runtime/launch.h"

namespace quire::cuda::hopper {
namespace {

constexpr int kThreads = 256;  // that code; a warp beside them looks up places
constexpr int kWarp = 32;
constexpr int kBlocksPerSm = 3;

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

// Where the vectors of a thread come from and go to, from the places of their tokens on. Worked out again for every
// vector, this was a quarter of all instructions: keep() makes registers of it.
struct ThreadOffsets {
  const std::byte* x;  // the first vector of the call's first chunk
  int row;

  __device__ ThreadOffsets(const StoreParams& params, const VectorRun& run, const ThreadRun& own,
                           int vector_bytes)
      : x(params.x + own.token * params.token_stride_bytes + own.row * params.head_stride_bytes +
          run.x_offset_bytes + own.vector * sizeof(uint4)),
        row(static_cast<int>(own.row * params.view.head_stride_bytes + run.offset_bytes) +
            own.vector * vector_bytes) {}
  __device__ void keep() { asm volatile("" : "+l"(x), "+r"(row)); }
};

template <typename Config> class TokenCoder {
 public:
  __device__ TokenCoder(const StoreParams& params, const CodeLayout& layout, const ThreadRun& coded,
                        const ThreadRun& copied)
      : params_(params),
        layout_(layout),
        token_(coded.token),
        step_(coded.step),
        copied_token_(copied.token),
        coded_(params, layout.coded, coded, sizeof(uint2)),
        copied_(params, layout.copied, copied, sizeof(uint4)) {
    const unsigned granule = coded.vector >> layout.granule_shift;
    if (granule << layout.granule_shift == coded.vector) {
      scale_ = static_cast<int>(coded.row * layout.scale_head_bytes + layout.scale_offset_bytes +
                                granule * layout.scale_slot_bytes);
    }
    coded_.keep();
    asm volatile("" : "+r"(scale_));
  }

  __device__ void load(const CodeChunk& chunk) {
    const std::int64_t first = chunk.first_token * params_.token_stride_bytes;
    const std::byte* from = coded_.x + first;
    const std::int64_t step = step_ * params_.token_stride_bytes;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) < chunk.tokens) raw_[i] = load_vector(from);
      from += step;
    }
    if (copied_token_ < chunk.tokens) copied_raw_ = load_vector(copied_.x + first);
  }

  // Codes and stores a chunk; the next one is on its way as soon as this one is coded. All lanes take
  // part in the maxima.
  __device__ void store(const CodeTarget* targets, const CodeChunk& chunk, const CodeChunk& next) {
    typename Amax::Value amax[kVectors];
    if constexpr (Config::kScaling == Scaling::granules) find_largest(amax);
    GranuleCodes codes[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (token(i) < chunk.tokens) codes[i] = encode(raw_[i], amax[i]);
    }
    if (copied_token_ < chunk.tokens) store_copied(targets[copied_token_].row, copied_raw_);
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
    return token_ + i * step_;
  }
  __device__ static uint4 load_vector(const std::byte* from) {
    return __ldcs(reinterpret_cast<const uint4*>(from));
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

  __device__ void store_codes(const CodeTarget& target, const GranuleCodes& codes) const {
    if (target.row != nullptr) write(target.row + coded_.row, codes.codes);
    if constexpr (Config::kScaling == Scaling::granules) {
      if (target.row != nullptr && target.scale != nullptr && scale_ >= 0) {
        write(target.scale + scale_, codes.scale);
      }
    }
  }
  __device__ void store_copied(std::byte* row, const uint4& raw) const {
    if (row != nullptr) write(row + copied_.row, raw);
  }
  template <typename T> __device__ static void write(std::byte* to, const T& value) {
    __builtin_assume(__isGlobal(to));  // which an address from shared memory does not say
    *reinterpret_cast<T*>(to) = value;
  }

  const StoreParams& params_;
  const CodeLayout& layout_;
  unsigned token_;  // of a chunk: the first of the thread's, then every step_-th
  unsigned step_;
  unsigned copied_token_;
  ThreadOffsets coded_;
  ThreadOffsets copied_;
  int scale_ = -1;  // from a token's first scale; -1: another thread's
  uint4 raw_[kVectors] = {};
  uint4 copied_raw_ = {};
};

template <typename Config>
__device__ void code_chunks(const StoreParams& params, const CodeLayout& layout,
                            const CodeTarget (&targets)[2][CodeGroups::kMostTokens]) {
  const unsigned first_row = blockIdx.y * layout.block_rows;
  const auto num_rows = static_cast<unsigned>(params.view.num_heads);
  TokenCoder<Config> coder(params, layout,
                           ThreadRun(layout.coded, first_row, layout.block_rows, num_rows),
                           ThreadRun(layout.copied, first_row, layout.block_rows, num_rows));
  const CodeGroups groups(layout);
  unsigned index = blockIdx.x;
  CodeChunk chunk(params, layout, index);
  coder.load(chunk);
  for (int turn = 0; chunk.tokens > 0; turn ^= 1) {
    __syncthreads();  // the group's targets are there, those of the group before it are not needed
    for (unsigned c = 0; c < groups.chunks && chunk.tokens > 0; ++c) {
      const CodeChunk next(params, layout, index += gridDim.x);
      coder.store(targets[turn] + c * layout.block_tokens, chunk, next);
      chunk = next;
    }
  }
}

// Blocks stay and take every gridDim.x-th chunk. The places of chunks are looked up, and a chunk's rows are on
// their way, while those before them are coded: a block for each chunk waits for both, one after the
// other, at its start.
template <typename Config>
__global__ void __launch_bounds__(kThreads + kWarp, kBlocksPerSm)
    code_tokens(const __grid_constant__ StoreParams params,
                const __grid_constant__ CodeLayout layout) {
  __shared__ CodeTarget targets[2][CodeGroups::kMostTokens];
  if (threadIdx.x < kThreads) return code_chunks<Config>(params, layout, targets);
  const TokenFinder finder(params.row_offsets, params.view.cache_lengths, params.view.batch);
  const auto has_scales = [] { return Config::kScaling == Scaling::granules; };
  const unsigned step = CodeGroups(layout).chunks * gridDim.x;
  unsigned index = blockIdx.x;
  find_targets(params, layout, finder, index, targets[0], has_scales);
  for (int turn = 1; CodeChunk(params, layout, index).tokens > 0; turn ^= 1) {
    __syncthreads();
    index += step;
    find_targets(params, layout, finder, index, targets[turn], has_scales);
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
  const unsigned copied =
      copied_vectors == 0 ? CodeGroups::kMostTokens : kThreads / (taken * copied_vectors);
  return {.rows = taken, .tokens = std::min({coded, copied, CodeGroups::kMostTokens})};
}

void launch_code(const StoreParams& params, const CodeLayout& layout, int sms,
                 cudaStream_t stream) {
  if (params.x_dtype == DType::bf16) return launch_for_x<DType::bf16>(params, layout, sms, stream);
  launch_for_x<DType::f16>(params, layout, sms, stream);
}

}  // namespace quire::cuda::hopper
