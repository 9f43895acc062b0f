// SPDX-License-Identifier: Apache-2.0
#include "cuda/hopper/latent/finish_plain.h"

namespace quire::cuda::hopper {
namespace {

constexpr std::int64_t kVectorBytes = 16;
constexpr std::int64_t kVectorColumns = 8;

bool is_aligned(const void* address, std::int64_t stride_bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % kVectorBytes == 0 &&
         stride_bytes % kVectorBytes == 0;
}

}  // namespace

bool are_plain_rows(const NewLatentRows& rows) {
  const KvLayerView view = rows.cache.key(rows.layer);
  const RowPart& part = view.row_format.parts[0];
  const bool is_plain = view.row_format.is_uniform() && part.scale_source == ScaleSource::none &&
                        (part.dtype == DType::bf16 || part.dtype == DType::f16);
  const bool is_whole = rows.kv_norm_gamma->shape[0] % kVectorColumns == 0 &&
                        view.width() % kVectorColumns == 0 && part.offset_bytes == 0;
  if (!is_plain || !is_whole) return false;
  if (rows.kv.has_value() &&
      (rows.kv->dtype != part.dtype ||
       !is_aligned(rows.kv->data, bytes_for(rows.kv->dtype, rows.kv->strides[0])))) {
    return false;
  }
  return is_aligned(view.data, view.token_stride_bytes) &&
         view.page_stride_bytes % kVectorBytes == 0;
}

void finish_plain_rows(const NewLatentRows& rows, cudaStream_t stream) {
  FinishPlainParams params{.view = rows.cache.key(rows.layer),
                           .row_offsets = rows.row_offsets.as<const std::uint32_t>(),
                           .tokens = rows.tokens,
                           .angles = latent_angles(rows.freqs_cis),
                           .gamma = rows.kv_norm_gamma->as<const std::byte>(),
                           .gamma_dtype = rows.kv_norm_gamma->dtype,
                           .epsilon = rows.epsilon,
                           .latent = static_cast<std::int32_t>(rows.kv_norm_gamma->shape[0])};
  if (rows.kv.has_value()) {
    params.kv = rows.kv->as<const std::byte>();
    params.kv_token_bytes = bytes_for(rows.kv->dtype, rows.kv->strides[0]);
  }
  launch_finish_plain(params, stream);
}

void finish_latent_rows(const NewLatentRows& rows, float* scratch, const Context& context) {
  if (rows.freqs_cis.has_value() && are_plain_rows(rows)) {
    finish_plain_rows(rows, static_cast<cudaStream_t>(context.stream));
  } else {
    finish_rows(rows, scratch, context);
  }
}

}  // namespace quire::cuda::hopper
