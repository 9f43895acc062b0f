// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/paging/decoded_pages.h"

#include "cuda/common/paging/row_reader.cuh"
#include "cuda/common/rows/vec8.cuh"
#include "cuda/common/runtime/launch.h"

namespace quire::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRows = 2 * kWarps;  // of a CTA: a page's rows are those of several

struct DecodePagesParams {
  KvLayerView coded;                 // read eight columns at a time, as the attention reads them
  const std::uint32_t* row_offsets;  // [batch + 1]
  std::byte* rows;                   // bf16 [batch · columns, page_size, width]
  std::uint32_t* ids;                // [batch, columns]
  int columns;
  int parts;  // CTAs of a page
  int width;
  std::int64_t tokens_per_row;
};

__global__ void __launch_bounds__(kThreads)
    decode_pages(const __grid_constant__ DecodePagesParams params) {
  const KvLayerView& view = params.coded;
  const unsigned page = blockIdx.x / params.parts;
  const int part = static_cast<int>(blockIdx.x % params.parts);
  const auto sequence = static_cast<int>(page / params.columns);
  const auto column = static_cast<int>(page % params.columns);
  const std::int64_t tokens = std::int64_t{view.cache_lengths[sequence]} +
                              params.row_offsets[sequence + 1] - params.row_offsets[sequence];
  const std::int64_t keys = tokens / params.tokens_per_row;
  const std::int64_t first = std::int64_t{column} * view.page_size;
  const bool is_there =
      first < keys && page_in(view, sequence, column) < static_cast<std::uint64_t>(view.num_pages);
  if (part == 0 && threadIdx.x == 0) params.ids[page] = is_there ? page : kUnassignedPage;
  if (!is_there) return;
  const int begin = part * kRows;
  const auto end =
      static_cast<int>(min(std::int64_t{min(begin + kRows, view.page_size)}, keys - first));
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int row = begin + static_cast<int>(threadIdx.x) / kWarp; row < end; row += kWarps) {
    const RowPlace place = place_row(view, sequence, first + row, 0);
    std::byte* to = params.rows + (std::int64_t{page} * view.page_size + row) * params.width * 2;
    for (int column = kVec8 * lane; column < params.width; column += kWarp * kVec8) {
      float values[kVec8];
      load_scaled_vec8(view, place, column, values);
      *reinterpret_cast<uint4*>(to + 2 * column) = Vec8<DType::bf16>::encode(values);
    }
  }
}

}  // namespace

DecodedPages DecodedPages::carve(Carver& carver, const DecodedShape& shape) {
  std::byte* rows = carver.take<std::byte>(shape.bytes());
  return {.shape = shape, .rows = rows, .ids = carver.take<std::uint32_t>(shape.pages())};
}

KvLayerView DecodedPages::view_of(const KvLayerView& coded) const {
  const std::int64_t row_bytes = std::int64_t{shape.width} * 2;
  KvLayerView view = coded;
  view.data = rows;
  view.row_format = RowFormat::uniform(DType::bf16, shape.width);
  view.num_pages = shape.pages();
  view.page_stride_bytes = shape.page_size * row_bytes;
  view.token_stride_bytes = row_bytes;
  view.head_stride_bytes = row_bytes;
  view.page_table = ids;
  view.page_table_stride = shape.columns;
  view.max_pages = shape.columns;
  view.scales = {};
  return view;
}

void launch_decode_pages(const KvLayerView& coded, const std::uint32_t* row_offsets,
                         const DecodedPages& decoded, cudaStream_t stream) {
  const DecodedShape& shape = decoded.shape;
  if (shape.pages() == 0) return;
  const std::int64_t parts = ceil_div(shape.page_size, kRows);
  launch(decode_pages,
         {.grid = dim3(static_cast<unsigned>(shape.pages() * parts)), .block = dim3(kThreads)},
         stream,
         DecodePagesParams{.coded = coded,
                           .row_offsets = row_offsets,
                           .rows = decoded.rows,
                           .ids = decoded.ids,
                           .columns = static_cast<int>(shape.columns),
                           .parts = static_cast<int>(parts),
                           .width = shape.width,
                           .tokens_per_row = shape.tokens_per_row});
}

}  // namespace quire::cuda
