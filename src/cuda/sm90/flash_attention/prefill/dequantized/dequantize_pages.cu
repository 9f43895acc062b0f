// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/paging/row_reader.cuh"
#include "cuda/common/runtime/launch.h"
#include "cuda/sm90/flash_attention/prefill/dequantized/dequantize_pages.h"

namespace quire::cuda::sm90::flash_attention {
namespace {

constexpr int kThreads = 256;
constexpr int kSides = 2;  // K, V

// One side of one KV head of one page.
struct PageSide {
  const RowReader& reader;
  int width;
  int sequence;
  int head;
  int first_key;
  int num_keys;   // of the page that there are
  std::byte* to;  // [page_size, width]
};

// Plain or scaled rows of one 8-bit dtype with one scale: 16 columns are one vector, and several
// are in flight before the first is decoded.
template <DType kFrom> struct ByteRows {
  static constexpr int kColumns = 16;
  static constexpr int kInFlight = 4;
  using Raw = uint4;

  __device__ static Raw load(const PageSide&, const RowPlace& place, int column) {
    return __ldg(reinterpret_cast<const uint4*>(place.row + column));
  }
  __device__ static void store(const PageSide& page, const RowPlace& place, int column,
                               const Raw& raw, DType dtype, std::byte* to) {
    const RowPart& part = page.reader.view.row_format.parts[0];
    const float scale = scale_of(page.reader.view, part, place, column, column);
    const uint2 halves[2] = {make_uint2(raw.x, raw.y), make_uint2(raw.z, raw.w)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float values[kVec8];
      if constexpr (kFrom == DType::fp8_e4m3) {
        decode_fp8(halves[half], __NV_E4M3, values);
      } else {
        decode_i8(halves[half], values);
      }
#pragma unroll
      for (float& value : values) value *= scale;
      store_vec8(to + 16 * half, dtype, values);
    }
  }
};

struct AnyRows {
  static constexpr int kColumns = kVec8;
  static constexpr int kInFlight = 1;  // reading any format calls: what is in flight would spill
  struct Raw {
    float values[kVec8];
  };

  __device__ static Raw load(const PageSide& page, const RowPlace& place, int column) {
    Raw raw;
    load_columns(page.reader, place, column, page.width, raw.values);
    return raw;
  }
  __device__ static void store(const PageSide&, const RowPlace&, int, const Raw& raw, DType dtype,
                               std::byte* to) {
    store_vec8(to, dtype, raw.values);
  }
};

template <typename Rows> __device__ inline void dequantize(const PageSide& page, DType dtype) {
  constexpr int kInFlight = Rows::kInFlight;
  const int vectors = page.width / Rows::kColumns;  // of a row
  const int total = page.num_keys * vectors;
  for (int first = static_cast<int>(threadIdx.x); first < total; first += kInFlight * kThreads) {
    typename Rows::Raw raw[kInFlight];
    RowPlace places[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int at = first + k * kThreads;
      if (at >= total) break;
      places[k] =
          place_row(page.reader.view, page.sequence, page.first_key + at / vectors, page.head);
      raw[k] = Rows::load(page, places[k], at % vectors * Rows::kColumns);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int at = first + k * kThreads;
      if (at >= total) break;
      Rows::store(page, places[k], at % vectors * Rows::kColumns, raw[k], dtype,
                  page.to + std::int64_t{at} * (2 * Rows::kColumns));
    }
  }
}

// Keys that there are and of which a block is seen.
__device__ inline KeyInterval wanted_keys(const DequantizeParams& params, int sequence) {
  const auto tokens =
      static_cast<int>(params.row_offsets[sequence + 1] - params.row_offsets[sequence]);
  if (tokens == 0) return {.first = 0, .end = 0};
  const auto position = static_cast<int>(params.keys.view.cache_lengths[sequence]);
  const int end = params.keys.view.key_lengths == nullptr
                      ? position + tokens
                      : static_cast<int>(params.keys.view.key_lengths[sequence]);
  // As tiles begin (common/prefill_attention/schedule.cuh): a window behind the last key has that key's block.
  const int seen = min(params.mask.of(position, end).first, end);
  return {.first = seen / params.block_keys * params.block_keys, .end = end};
}

template <typename Rows>
__global__ void __launch_bounds__(kThreads)
    dequantize_pages_kernel(const __grid_constant__ DequantizeParams params) {
  const KvLayerView& view = params.keys.view;
  const auto column = static_cast<int>(blockIdx.x);
  const auto sequence = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.z) / kSides;
  const bool is_key = blockIdx.z % kSides == 0;
  const KeyInterval wanted = wanted_keys(params, sequence);
  const int first_key = column * view.page_size;
  if (first_key >= wanted.end || first_key + view.page_size <= wanted.first) return;
  const bool is_there = is_mapped(view, sequence, first_key);
  const std::int64_t page = std::int64_t{sequence} * params.columns + column;
  if (blockIdx.z == 0 && threadIdx.x == 0) {
    params.table[page] = is_there ? static_cast<std::uint32_t>(page) : 0xffffffffU;
  }
  if (!is_there) return;
  const int left = wanted.end - first_key;
  const int width = is_key ? params.key_width : params.value_width;
  std::byte* pages = is_key ? params.dequantized_keys : params.dequantized_values;
  dequantize<Rows>({.reader = is_key ? params.keys : params.values,
                    .width = width,
                    .sequence = sequence,
                    .head = head,
                    .first_key = first_key,
                    .num_keys = left < view.page_size ? left : view.page_size,
                    .to = pages + (page * view.num_heads + head) * view.page_size * width * 2},
                   params.dtype);
}

// Whether rows are vectors of 16 bytes of one dtype, with one scale for all of a row.
bool has_byte_rows(const RowReader& reader, DType dtype, int width) {
  const RowFormat& format = reader.view.row_format;
  const RowPart& part = format.parts[0];
  const bool is_scaled = part.scale_source != ScaleSource::none;
  const auto is_vector = [](std::int64_t bytes) { return bytes % 16 == 0; };
  return format.num_parts == 1 && part.dtype == dtype && width % 16 == 0 &&
         (!is_scaled || part.granularity % 16 == 0) && part.offset_bytes == 0 &&
         is_vector(reinterpret_cast<std::intptr_t>(reader.view.data)) &&
         is_vector(reader.view.page_stride_bytes) && is_vector(reader.view.token_stride_bytes) &&
         is_vector(reader.view.head_stride_bytes);
}

template <typename Rows> void launch_rows(const DequantizeParams& params, cudaStream_t stream) {
  const KvLayerView& view = params.keys.view;
  launch(dequantize_pages_kernel<Rows>,
         {.grid = dim3(static_cast<unsigned>(params.columns), static_cast<unsigned>(view.batch),
                       static_cast<unsigned>(kSides * view.num_heads)),
          .block = dim3(kThreads)},
         stream, params);
}

}  // namespace

void dequantize_pages(const DequantizeParams& params, cudaStream_t stream) {
  for (const DType dtype : {DType::fp8_e4m3, DType::i8}) {
    if (!has_byte_rows(params.keys, dtype, params.key_width) ||
        !has_byte_rows(params.values, dtype, params.value_width)) {
      continue;
    }
    if (dtype == DType::fp8_e4m3) return launch_rows<ByteRows<DType::fp8_e4m3>>(params, stream);
    return launch_rows<ByteRows<DType::i8>>(params, stream);
  }
  launch_rows<AnyRows>(params, stream);
}

}  // namespace quire::cuda::sm90::flash_attention
