// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/flash_attention/decode/key_blocks.h"

#include "cuda/common/paging/page_cursor.cuh"
#include "cuda/common/rows/token_place.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/common/thread/warp_reduce.cuh"

namespace quire::cuda::sm90::flash_attention {
namespace {

constexpr int kWarps = 4;
constexpr unsigned kAllLanes = 0xffffffff;

struct ListParams {
  const std::int32_t* blocks = nullptr;  // [tokens, KV heads, slots]
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  int slots = 0;
  int block_size = 0;
  int block_pages = 0;  // pages of a block
  bool is_causal = true;
  const std::uint32_t* row_offsets = nullptr;  // [batch + 1]
  KvLayerView keys{};
  ListedKeys listed{};
};

// The keys of its sequence that a token sees: those in front of the end.
struct SeenSpan {
  int sequence = 0;
  std::int64_t end = 0;
};

__device__ SeenSpan seen_keys(const ListParams& params, std::int64_t token) {
  const KvLayerView& keys = params.keys;
  const TokenPlace place =
      place_of_token(params.row_offsets, keys.cache_lengths, keys.batch, token);
  if (!place.exists()) return {};
  const auto sequence = static_cast<int>(place.sequence);
  const std::int64_t num_keys = keys.key_lengths != nullptr
                                    ? std::int64_t{keys.key_lengths[sequence]}
                                    : std::int64_t{keys.cache_lengths[sequence]} +
                                          params.row_offsets[sequence + 1] -
                                          params.row_offsets[sequence];
  return {.sequence = sequence,
          .end = params.is_causal ? min(num_keys, place.position + 1) : num_keys};
}

// The pages of a block to the table, from column `first` on.
__device__ void copy_pages(const ListParams& params, int sequence, std::int64_t block,
                           std::uint32_t* table, std::int64_t first) {
  for (int i = 0; i < params.block_pages; ++i) {
    const std::int64_t column = block * params.block_pages + i;
    table[first + i] =
        column < params.keys.max_pages ? page_in(params.keys, sequence, column) : kUnassignedPage;
  }
}

// A warp per list, a block per lane. A block that ends behind what the token sees comes last: the others are then
// whole, and the keys of the list those of its first pages.
__global__ void __launch_bounds__(32 * kWarps)
    list_pages_kernel(const __grid_constant__ ListParams params) {
  const std::int64_t list = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (list >= params.listed.lists) return;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t kv_heads = params.keys.num_heads;
  const std::int64_t token = list / kv_heads;
  const SeenSpan seen = seen_keys(params, token);
  const std::int32_t* blocks =
      params.blocks + token * params.token_stride + (list - token * kv_heads) * params.head_stride;
  std::uint32_t* table = params.listed.pages + list * params.listed.columns;
  std::int64_t whole = 0;  // blocks
  std::int64_t cut = -1;   // the one that the token sees the beginning of
  for (int first = 0; first < params.slots; first += 32) {
    const std::int64_t block = first + lane < params.slots ? blocks[first + lane] : -1;
    const std::int64_t key = block * params.block_size;
    const bool is_whole = block >= 0 && key + params.block_size <= seen.end;
    const unsigned wholes = __ballot_sync(kAllLanes, is_whole);
    const unsigned cuts = __ballot_sync(kAllLanes, block >= 0 && !is_whole && key < seen.end);
    if (is_whole) {
      const int before = __popc(wholes & ((1U << lane) - 1));
      copy_pages(params, seen.sequence, block, table, (whole + before) * params.block_pages);
    }
    if (cuts != 0) cut = __shfl_sync(kAllLanes, block, __ffs(static_cast<int>(cuts)) - 1);
    whole += __popc(wholes);
  }
  if (lane != 0) return;
  std::int64_t length = whole * params.block_size;
  if (cut >= 0) {
    copy_pages(params, seen.sequence, cut, table, whole * params.block_pages);
    length += seen.end - cut * params.block_size;
  }
  params.listed.lengths[list] = static_cast<std::uint32_t>(length);
  const std::int64_t taken = std::int64_t{params.row_offsets[params.keys.batch]} * kv_heads;
  params.listed.row_offsets[list] = static_cast<std::uint32_t>(min(list, taken));
  if (list + 1 == params.listed.lists) {
    params.listed.row_offsets[list + 1] = static_cast<std::uint32_t>(min(list + 1, taken));
  }
}

}  // namespace

ListedKeys ListedKeys::carve(Carver& carver, const FlashAttentionProblem& problem) {
  const std::int64_t lists = problem.ragged.tokens * problem.cache.num_kv_heads;
  const std::int64_t columns =
      problem.max_key_blocks * (problem.key_block_size / problem.cache.page_size);
  return {.row_offsets = carver.take<std::uint32_t>(lists + 1),
          .lengths = carver.take<std::uint32_t>(lists),
          .pages = carver.take<std::uint32_t>(lists * columns),
          .lists = lists,
          .columns = columns};
}

KvLayerView ListedKeys::in(const KvLayerView& view) const {
  KvLayerView listed = view;
  listed.batch = lists;
  listed.cache_lengths = lengths;
  listed.key_lengths = lengths;
  listed.page_table = pages;
  listed.page_table_stride = columns;
  listed.max_pages = columns;
  return listed;
}

void launch_list_pages(const FlashAttentionArgs& args, const KvLayerView& keys,
                       const ListedKeys& listed, cudaStream_t stream) {
  const TensorView& blocks = *args.key_blocks;
  launch(list_pages_kernel,
         {.grid = dim3(num_blocks(listed.lists, kWarps)), .block = dim3(32 * kWarps)}, stream,
         {.blocks = blocks.as<const std::int32_t>(),
          .token_stride = blocks.strides[0],
          .head_stride = blocks.strides[1],
          .slots = static_cast<int>(blocks.shape[2]),
          .block_size = static_cast<int>(args.key_block_size),
          .block_pages = static_cast<int>(args.key_block_size / keys.page_size),
          .is_causal = args.mask.summary().ahead == 0,
          .row_offsets = args.row_offsets.as<const std::uint32_t>(),
          .keys = keys,
          .listed = listed});
}

}  // namespace quire::cuda::sm90::flash_attention
