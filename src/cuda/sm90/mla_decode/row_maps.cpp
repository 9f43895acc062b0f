// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_decode/row_maps.h"

#include <bit>
#include <numeric>

#include "cuda/sm90/mla_decode/swap_ab/config.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

// (byte of the swizzle column, row of the page, swizzle column, page); as swizzle columns are swizzled in shared memory, `swizzle_column_bytes` is 64 or 128.
TensorMap swizzle_column_map(const LatentPages& pages, int swizzle_column_bytes, int rows,
                             int swizzle_columns) {
  TileDescriptor tile;
  tile.dtype = DType::u8;
  tile.rank = 4;
  tile.dims = {swizzle_column_bytes, pages.page_size, pages.row_bytes / swizzle_column_bytes,
               pages.num_pages};
  tile.strides_bytes = {pages.token_stride_bytes, swizzle_column_bytes, pages.page_stride_bytes};
  tile.box = {swizzle_column_bytes, rows, swizzle_columns, 1};
  tile.swizzle = swizzle_column_bytes == 128 ? Swizzle::b128 : Swizzle::b64;
  tile.l2_promotion = L2Promotion::b128;
  return encode_tensor_map(tile, const_cast<std::byte*>(pages.rows));
}

constexpr int kRowSwizzleColumn = 128;  // bytes: 64 columns of bf16

}  // namespace

void set_swizzle_column_maps(MlaDecodeParams& params) {
  constexpr int kRows = SwapAbConfig::kUnitKeys;
  params.latents = swizzle_column_map(params.pages, kRowSwizzleColumn, kRows,
                                      params.pages.row_bytes / kRowSwizzleColumn);
  if (params.format.has_fp8_rope)
    params.tails = swizzle_column_map(params.pages, kRowSwizzleColumn / 2, kRows, 1);
}

// (8 bytes, row of the page, page). Bytes of the box behind a row's end are zeros: they space rows out.
void set_unit_maps(MlaDecodeParams& params) {
  constexpr int kElement = 8;
  const LatentPages& pages = params.pages;
  TileDescriptor tile;
  tile.dtype = DType::i64;
  tile.rank = 3;
  tile.dims = {pages.row_bytes / kElement, pages.page_size, pages.num_pages};
  tile.strides_bytes = {pages.token_stride_bytes, pages.page_stride_bytes};
  tile.box = {SwapAbConfig::kFp8Pitch / kElement, SwapAbConfig::kUnitKeys, 1};
  tile.l2_promotion = L2Promotion::b128;
  params.latents = encode_tensor_map(tile, const_cast<std::byte*>(pages.rows));
}

void set_row_maps(MlaDecodeParams& params) {
  params.pages.box_rows = std::gcd(params.pages.page_size, LatentConfig::kKeys);
  params.pages.box_bits = std::countr_zero(static_cast<unsigned>(params.pages.box_rows));
  params.latents = swizzle_column_map(params.pages, kRowSwizzleColumn, params.pages.box_rows, 2);
  params.tails = swizzle_column_map(params.pages, kRowSwizzleColumn, params.pages.box_rows, 1);
}

}  // namespace quire::cuda::sm90::mla_decode
