// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/mla/finish_rows.h"

#include "cuda/any/store/launch.h"

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

}  // namespace quire::cuda
