// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/paging/row_reader.h"

#include "cuda/common/runtime/alignment.h"

namespace quire::cuda {
namespace {

constexpr std::int32_t kVec8 = 8;

std::int64_t vec8_bytes(DType dtype) {
  return bits(dtype) == 8 ? 8 : 16;
}

bool part_reads_vec8(const KvLayerView& view, const RowPart& part) {
  const std::int64_t bytes = vec8_bytes(part.dtype);
  const bool is_scaled = part.scale_source != ScaleSource::none;
  return part.width % kVec8 == 0 &&
         (!is_scaled || part.granularity % kVec8 == 0 || part.granularity >= view.width()) &&
         are_aligned(bytes, part.offset_bytes, view.data, view.page_stride_bytes,
                     view.token_stride_bytes, view.head_stride_bytes);
}

}  // namespace

RowReader row_reader(const KvLayerView& view) {
  RowReader reader{.view = view, .reads_vec8 = true};
  for (std::int32_t p = 0; p < view.row_format.num_parts; ++p) {
    const RowPart& part = view.row_format.parts[static_cast<std::size_t>(p)];
    reader.reads_vec8 = reader.reads_vec8 && part_reads_vec8(view, part);
  }
  return reader;
}

PlainRows plain_rows(const TensorView& tensor) {
  PlainRows rows{.data = tensor.as<const std::byte>(),
                 .dtype = tensor.dtype,
                 .width = static_cast<std::int32_t>(tensor.shape[2]),
                 .token_bytes = bytes_for(tensor.dtype, tensor.strides[0]),
                 .head_bytes = bytes_for(tensor.dtype, tensor.strides[1])};
  const std::int64_t bytes = vec8_bytes(tensor.dtype);
  rows.reads_vec8 =
      rows.width % kVec8 == 0 && are_aligned(bytes, rows.data, rows.token_bytes, rows.head_bytes);
  return rows;
}

}  // namespace quire::cuda
