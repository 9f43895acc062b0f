// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/mla/finish_rows.h"

#include "cuda/any/store/launch.h"
#include "cuda/common/runtime/alignment.h"

namespace quire::cuda {

LatentAngles latent_angles(const std::optional<TensorView>& freqs_cis) {
  if (!freqs_cis.has_value()) return {};
  return {.freqs = freqs_cis->as<const std::byte>(),
          .dtype = freqs_cis->dtype,
          .row_stride = freqs_cis->strides[0],
          .max_pos = freqs_cis->shape[0]};
}

void finish_rows(const NewLatentRows& rows, float* scratch, const Context& context) {
  if (!rows.freqs_cis.has_value()) return;
  const KvLayerView view = rows.cache.key(rows.layer);
  FinishRowsParams params{.cache = row_reader(view),
                          .row_offsets = rows.row_offsets.as<const std::uint32_t>(),
                          .tokens = rows.tokens,
                          .angles = latent_angles(rows.freqs_cis),
                          .gamma = rows.kv_norm_gamma->as<const std::byte>(),
                          .gamma_dtype = rows.kv_norm_gamma->dtype,
                          .epsilon = rows.epsilon,
                          .latent = static_cast<std::int32_t>(rows.kv_norm_gamma->shape[0]),
                          .rows = scratch};
  if (rows.kv.has_value()) {
    params.kv = rows.kv->as<const std::byte>();
    params.kv_dtype = rows.kv->dtype;
    params.kv_token_bytes = bytes_for(rows.kv->dtype, rows.kv->strides[0]);
  }
  launch_finish_rows(params, static_cast<cudaStream_t>(context.stream));
  any::store::store({.x = TensorView::contiguous(scratch, DType::f32,
                                                 {rows.tokens, 1, view.width()}, rows.device),
                     .row_offsets = rows.row_offsets,
                     .cache = rows.cache,
                     .layer = rows.layer,
                     .side = KvSide::key},
                    context);
}

bool is_plain_layer(const KvLayerView& view) {
  const RowPart& part = view.row_format.parts[0];
  const bool is_plain = view.row_format.is_uniform() && part.scale_source == ScaleSource::none &&
                        (part.dtype == DType::bf16 || part.dtype == DType::f16);
  return is_plain && view.width() % kVectorColumns == 0 && part.offset_bytes == 0 &&
         are_aligned(kVectorBytes, view.data, view.token_stride_bytes, view.page_stride_bytes);
}

bool are_plain_rows(const NewLatentRows& rows) {
  const KvLayerView view = rows.cache.key(rows.layer);
  if (!is_plain_layer(view) || rows.kv_norm_gamma->shape[0] % kVectorColumns != 0) return false;
  return !rows.kv.has_value() ||
         (rows.kv->dtype == view.row_format.parts[0].dtype &&
          are_aligned(kVectorBytes, rows.kv->data, bytes_for(rows.kv->dtype, rows.kv->strides[0])));
}

FinishPlainParams finish_plain_params(const NewLatentRows& rows) {
  FinishPlainParams params{
      .view = rows.cache.key(rows.layer),
      .row_offsets = rows.row_offsets.as<const std::uint32_t>(),
      .tokens = rows.tokens,
      .how = {.angles = latent_angles(rows.freqs_cis),
              .gamma = rows.kv_norm_gamma->as<const std::byte>(),
              .gamma_dtype = rows.kv_norm_gamma->dtype,
              .epsilon = rows.epsilon,
              .latent = static_cast<std::int32_t>(rows.kv_norm_gamma->shape[0])}};
  if (rows.kv.has_value()) {
    params.kv = rows.kv->as<const std::byte>();
    params.kv_token_bytes = bytes_for(rows.kv->dtype, rows.kv->strides[0]);
  }
  return params;
}

void finish_latent_rows(const NewLatentRows& rows, float* scratch, const Context& context) {
  if (rows.freqs_cis.has_value() && are_plain_rows(rows)) {
    launch_finish_plain(finish_plain_params(rows), static_cast<cudaStream_t>(context.stream));
  } else {
    finish_rows(rows, scratch, context);
  }
}

}  // namespace quire::cuda
