// SPDX-License-Identifier: Apache-2.0
// A block moves kBlockUnits neighbouring units of one page: every load is on its way before the
// first store. Which pages they are is read on the device, so that a recorded launch serves other
// pairs.
#include <cstddef>
#include <string>

#include "core/page_runs.h"
#include "cuda/any/companions.h"
#include "cuda/common/rows/divisor.h"
#include "cuda/common/rows/load_once.cuh"
#include "cuda/common/runtime/device_facts.h"
#include "cuda/common/runtime/device_scope.h"
#include "cuda/common/runtime/launch.h"
#include "quire/error.h"

namespace quire::cuda::any::copy_pages {
namespace {

constexpr int kThreads = 256;
constexpr int kUnits = 4;  // per thread
constexpr int kBlockUnits = kThreads * kUnits;
constexpr int kMaxLoops = 5;
constexpr std::int64_t kMaxRunUnits = 0x7fffffff;  // of Divisor

// Units of a page end to end: those of run 0, of run 1, …
struct CopyParams {
  std::byte* pages;
  const std::uint32_t* pairs;  // [count, 2]
  std::int64_t pair_stride;
  std::int64_t num_pages;
  std::int64_t page_stride_bytes;
  std::int64_t page_units;
  std::int64_t page_blocks;
  Divisor run_units{1};
  int num_loops = 0;
  Divisor loop_counts[kMaxLoops] = {Divisor(1), Divisor(1), Divisor(1), Divisor(1), Divisor(1)};
  std::int64_t loop_strides_bytes[kMaxLoops] = {};
};

template <typename Unit>
__device__ std::int64_t offset_bytes(const CopyParams& params, std::int64_t unit) {
  std::int64_t run = params.run_units.quotient_of(unit);
  std::int64_t offset = (unit - run * params.run_units.value()) * std::int64_t{sizeof(Unit)};
  for (int i = 0; i < params.num_loops; ++i) {
    const std::int64_t outer = params.loop_counts[i].quotient_of(run);
    offset += (run - outer * params.loop_counts[i].value()) * params.loop_strides_bytes[i];
    run = outer;
  }
  return offset;
}

template <typename Unit> __device__ Unit load_unit(const std::byte* from) {
  return __ldcs(reinterpret_cast<const Unit*>(from));
}
template <> __device__ uint4 load_unit<uint4>(const std::byte* from) {
  return load_once(from);
}

template <typename Unit>
__global__ void __launch_bounds__(kThreads) copy_units(const __grid_constant__ CopyParams params) {
  const std::int64_t pair = blockIdx.x / params.page_blocks;
  const std::int64_t first = (blockIdx.x - pair * params.page_blocks) * kBlockUnits + threadIdx.x;
  const std::int64_t source = params.pairs[pair * params.pair_stride];
  const std::int64_t target = params.pairs[pair * params.pair_stride + 1];
  if (source >= params.num_pages || target >= params.num_pages) return;
  const std::byte* from = params.pages + source * params.page_stride_bytes;
  std::byte* to = params.pages + target * params.page_stride_bytes;
  Unit values[kUnits];
  std::int64_t offsets[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const std::int64_t unit = first + i * kThreads;
    if (unit >= params.page_units) break;
    offsets[i] = offset_bytes<Unit>(params, unit);
    values[i] = load_unit<Unit>(from + offsets[i]);
  }
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    if (first + i * kThreads >= params.page_units) break;
    *reinterpret_cast<Unit*>(to + offsets[i]) = values[i];
  }
}

bool has_whole_units(const std::byte* pages, const PageRuns& runs, std::int64_t bytes) {
  bool fits = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(pages)) % bytes == 0 &&
              runs.page_stride_bytes % bytes == 0 && runs.run_bytes % bytes == 0;
  for (int i = 0; i < runs.num_loops; ++i) {
    fits = fits && runs.loops[static_cast<std::size_t>(i)].stride_bytes % bytes == 0;
  }
  return fits;
}

template <typename Unit>
void launch_units(CopyParams params, const PageRuns& runs, std::int64_t num_pairs,
                  cudaStream_t stream) {
  const std::int64_t run_units = runs.run_bytes / std::int64_t{sizeof(Unit)};
  if (run_units > kMaxRunUnits) {
    throw Error(ErrorCode::unsupported, "copy_pages", "cache.blocks",
                "runs of fewer than 2^31 units on cuda", std::to_string(run_units));
  }
  params.run_units = Divisor(static_cast<unsigned>(run_units));
  params.page_units = run_units * runs.num_runs();
  params.page_blocks = (params.page_units + kBlockUnits - 1) / kBlockUnits;
  launch(copy_units<Unit>,
         {.grid = dim3(num_blocks(num_pairs * params.page_blocks, 1)), .block = dim3(kThreads)},
         stream, params);
}

// pages: [num_pages, …]; num_pages of the cache, which the scales may exceed.
void copy(const TensorView& pages, const TensorView& pairs, std::int64_t num_pages,
          cudaStream_t stream) {
  const PageRuns runs = page_runs(pages);
  if (pages.strides[0] == 0 || runs.run_bytes == 0) return;  // shared by all pages, or empty
  CopyParams params{.pages = pages.as<std::byte>(),
                    .pairs = pairs.as<const std::uint32_t>(),
                    .pair_stride = pairs.strides[0],
                    .num_pages = num_pages,
                    .page_stride_bytes = runs.page_stride_bytes,
                    .page_units = 0,
                    .page_blocks = 0,
                    .num_loops = runs.num_loops};
  for (int i = 0; i < runs.num_loops; ++i) {
    const PageRuns::Loop& loop = runs.loops[static_cast<std::size_t>(i)];
    params.loop_counts[i] = Divisor(static_cast<unsigned>(loop.count));
    params.loop_strides_bytes[i] = loop.stride_bytes;
  }
  if (has_whole_units(params.pages, runs, sizeof(uint4))) {
    return launch_units<uint4>(params, runs, pairs.shape[0], stream);
  }
  launch_units<unsigned char>(params, runs, pairs.shape[0], stream);
}

}  // namespace

void copy_pages(const CopyPagesArgs& args, const Context& context) {
  const DeviceScope scope(args.pairs.device);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (args.pairs.shape[0] == 0) return;
  copy(args.cache.blocks, args.pairs, args.cache.num_pages(), stream);
  if (args.cache.value_blocks) {
    copy(*args.cache.value_blocks, args.pairs, args.cache.num_pages(), stream);
  }
  if (args.cache.scales) copy(*args.cache.scales, args.pairs, args.cache.num_pages(), stream);
}

}  // namespace quire::cuda::any::copy_pages
