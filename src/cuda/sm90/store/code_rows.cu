// SPDX-License-Identifier: Apache-2.0
// Rows of 512 16-bit columns on their way into fp8, then columns that are copied, with their scales in the row: a warp
// takes whole tokens. It puts a row together in shared memory as it will stand in its page, and TMA takes
// it there: rows of 656 bytes begin in the middle of a sector, and written piece by piece they take a tenth longer.
#include <cutlass/arch/barrier.h>

#include <algorithm>

#include "cuda/any/store/places.cuh"
#include "cuda/common/pipeline/tma.cuh"
#include "cuda/common/rows/granule_coder.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/store/launch.h"

namespace quire::cuda::sm90::store {
namespace {

using any::store::CodeLayout;
using any::store::kCodedRowVectors;
using any::store::kMostStagedRowBytes;
using any::store::StoreParams;
using any::store::StoreSides;

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 3;
constexpr int kTokens = 2;                        // of a warp, at once
constexpr int kSlots = kCodedRowVectors / kWarp;  // of a lane
constexpr unsigned kAll = 0xffffffffu;

// Of kTokens neighbouring tokens.
struct RawTokenRows {
  uint4 coded[kTokens][kSlots];
  uint4 copied;
};

template <DType kX, DType kCoded> class RowCoder {
 public:
  __device__ RowCoder(const StoreParams& params, const CodeLayout& layout)
      : params_(params),
        layout_(layout),
        lane_(static_cast<int>(threadIdx.x) % kWarp),
        copied_vectors_(layout.copied.is_used ? static_cast<int>(layout.copied.per_row.value())
                                              : 0) {}

  __device__ void load(std::int64_t first, RawTokenRows& raw) const {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (first + t >= params_.tokens) continue;
      const std::byte* row = params_.x + (first + t) * params_.token_stride_bytes;
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        raw.coded[t][s] = load_vector(row + (lane_ + s * kWarp) * sizeof(uint4));
      }
    }
    if (const std::int64_t token = first + copied_token(); has_copied() && token < params_.tokens) {
      raw.copied = load_vector(params_.x + token * params_.token_stride_bytes +
                               layout_.copied.x_offset_bytes + copied_vector() * sizeof(uint4));
    }
  }

  // All lanes take part in the maxima.
  __device__ void encode(const RawTokenRows& raw, GranuleCodes (&codes)[kTokens][kSlots]) const {
    typename Amax::Value amax[kTokens][kSlots];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
#pragma unroll
      for (int s = 0; s < kSlots; ++s) amax[t][s] = Amax::of(raw.coded[t][s]);
    }
    for (unsigned step = 1u << layout_.granule_shift >> 1; step > 0; step /= 2) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
#pragma unroll
        for (int s = 0; s < kSlots; ++s) {
          amax[t][s] = Amax::merge(amax[t][s], Amax::exchange(amax[t][s], step));
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        codes[t][s] = Coder::encode(raw.coded[t][s], Amax::magnitude(amax[t][s]));
      }
    }
  }

  // Into rows that follow each other.
  __device__ void write(std::byte* rows, const GranuleCodes (&codes)[kTokens][kSlots],
                        const uint4& copied) const {
    const int granule_lanes = (1 << layout_.granule_shift) - 1;
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      std::byte* row = rows + t * layout_.staged_row_bytes;
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int vector = lane_ + s * kWarp;
        put(row + layout_.coded.offset_bytes + vector * sizeof(uint2), codes[t][s].codes);
        if ((lane_ & granule_lanes) == 0) {
          put(row + layout_.scale_offset_bytes + (vector >> layout_.granule_shift) * 4,
              codes[t][s].scale);
        }
      }
    }
    if (has_copied()) {
      put(rows + copied_token() * layout_.staged_row_bytes + layout_.copied.offset_bytes +
              copied_vector() * sizeof(uint4),
          copied);
    }
  }

 private:
  using Amax = Largest<kX>;
  using Coder = GranuleCoder<kX, kCoded>;

  __device__ bool has_copied() const {
    return lane_ < kTokens * copied_vectors_;
  }
  __device__ int copied_token() const {
    return lane_ >= copied_vectors_ ? 1 : 0;
  }
  __device__ int copied_vector() const {
    return lane_ - copied_token() * copied_vectors_;
  }
  __device__ static uint4 load_vector(const std::byte* from) {
    return __ldcs(reinterpret_cast<const uint4*>(from));
  }
  template <typename T> __device__ static void put(std::byte* to, const T& value) {
    __builtin_assume(__isShared(to));
    *reinterpret_cast<T*>(to) = value;
  }

  const StoreParams& params_;
  const CodeLayout& layout_;
  int lane_;
  int copied_vectors_;  // of a token
};

template <DType kX, DType kCoded, typename Rows>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    code_rows(const __grid_constant__ Rows rows, const __grid_constant__ CodeLayout layout) {
  const StoreParams& params = any::store::side_of(rows);
  __shared__ alignas(128) std::byte memory[kThreads / kWarp][2][kTokens * kMostStagedRowBytes];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t warps = std::int64_t{gridDim.x} * (kThreads / kWarp);
  std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp * kTokens;
  const std::int64_t step = warps * kTokens;
  const RowCoder<kX, kCoded> coder(params, layout);
  const any::store::PlaceFinder<Rows, TokenFinder> finder(rows);
  if (threadIdx.x < kWarp) prefetch_ids(params.view, lane);
  RawTokenRows raw = {};
  coder.load(first, raw);
  std::byte* found = nullptr;  // the row of a token of the next steps, a lane each
  for (int known = kWarp / kTokens, turn = 0; first < params.tokens;
       first += step, turn ^= 1, ++known) {
    if (known == kWarp / kTokens) {
      known = 0;
      found = finder.row(finder.find(first + lane / kTokens * step + lane % kTokens));
    }
    const auto own = reinterpret_cast<std::byte*>(__shfl_sync(
        kAll, reinterpret_cast<unsigned long long>(found), known * kTokens + lane % kTokens));
    GranuleCodes codes[kTokens][kSlots];
    coder.encode(raw, codes);
    const uint4 copied = raw.copied;
    coder.load(first + step, raw);
    std::byte* staged = memory[threadIdx.x / kWarp][turn];
    wait_stored_bytes_read<1>();  // those of the step before the last: the memory is free
    __syncwarp();
    coder.write(staged, codes, copied);
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    if (lane < kTokens && first + lane < params.tokens && own != nullptr) {
      store_bytes(own, staged + lane * layout.staged_row_bytes, layout.staged_row_bytes);
    } else {
      commit_no_bytes();
    }
  }
  wait_stored_bytes_read<0>();
}

template <DType kX, typename Rows>
void launch_for(const Rows& rows, const CodeLayout& layout, int sms, cudaStream_t stream) {
  const StoreParams& params = first_side(rows);
  const unsigned resident = static_cast<unsigned>(sms * kBlocksPerSm) / num_sides(rows);
  const LaunchShape shape{
      .grid = dim3(std::min(num_blocks(params.tokens, kTokens * kThreads / kWarp), resident), 1,
                   num_sides(rows)),
      .block = dim3(kThreads)};
  if (params.view.row_format.parts[0].dtype == DType::fp8_e4m3) {
    return launch(code_rows<kX, DType::fp8_e4m3, Rows>, shape, stream, rows, layout);
  }
  launch(code_rows<kX, DType::fp8_e5m2, Rows>, shape, stream, rows, layout);
}

template <typename Rows>
void launch_rows(const Rows& rows, const CodeLayout& layout, int sms, cudaStream_t stream) {
  if (first_side(rows).x_dtype == DType::bf16) {
    return launch_for<DType::bf16>(rows, layout, sms, stream);
  }
  launch_for<DType::f16>(rows, layout, sms, stream);
}

}  // namespace

void launch_code_rows(const StoreParams& rows, const CodeLayout& layout, int sms,
                      cudaStream_t stream) {
  launch_rows(rows, layout, sms, stream);
}

void launch_code_rows(const StoreSides& rows, const CodeLayout& layout, int sms,
                      cudaStream_t stream) {
  launch_rows(rows, layout, sms, stream);
}

}  // namespace quire::cuda::sm90::store
