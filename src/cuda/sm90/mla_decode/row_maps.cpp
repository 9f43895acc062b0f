// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/mla_decode/row_maps.h"

#include <bit>
#include <numeric>

#include "cuda/sm90/mla_decode/few_rows/config.h"

namespace quire::cuda::sm90::mla_decode {
namespace {

// (byte of the slab, row of the page, slab, page); as slabs are swizzled in shared memory, `slab_bytes` is 64 or 128.
TensorMap slab_map(const LatentPages& pages, int slab_bytes, int rows, int slabs) {
  TileDescriptor tile;
  tile.dtype = DType::u8;
  tile.rank = 4;
  tile.dims = {slab_bytes, pages.page_size, pages.row_bytes / slab_bytes, pages.num_pages};
  tile.strides_bytes = {pages.token_stride_bytes, slab_bytes, pages.page_stride_bytes};
  tile.box = {slab_bytes, rows, slabs, 1};
  tile.swizzle = slab_bytes == 128 ? Swizzle::b128 : Swizzle::b64;
  tile.l2_promotion = L2Promotion::b128;
  return encode_tensor_map(tile, const_cast<std::byte*>(pages.rows));
}

constexpr int kRowSlab = 128;  // bytes: 64 columns of bf16

}  // namespace

void set_slab_maps(MlaDecodeParams& params) {
  constexpr int kRows = FewRowsConfig::kUnitKeys;
  params.latents = slab_map(params.pages, kRowSlab, kRows, params.pages.row_bytes / kRowSlab);
  if (params.format.has_fp8_rope) params.tails = slab_map(params.pages, kRowSlab / 2, kRows, 1);
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
  tile.box = {FewRowsConfig::kFp8Pitch / kElement, FewRowsConfig::kUnitKeys, 1};
  tile.l2_promotion = L2Promotion::b128;
  params.latents = encode_tensor_map(tile, const_cast<std::byte*>(pages.rows));
}

void set_row_maps(MlaDecodeParams& params) {
  params.pages.box_rows = std::gcd(params.pages.page_size, LatentConfig::kKeys);
  params.pages.box_bits = std::countr_zero(static_cast<unsigned>(params.pages.box_rows));
  params.latents = slab_map(params.pages, kRowSlab, params.pages.box_rows, 2);
  params.tails = slab_map(params.pages, kRowSlab, params.pages.box_rows, 1);
}

}  // namespace quire::cuda::sm90::mla_decode
