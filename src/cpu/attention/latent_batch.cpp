// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/latent_batch.h"

#include <algorithm>
#include <span>

#include "cpu/attention/latent_kernels.h"
#include "cpu/rows/new_tokens.h"
#include "cpu/runtime/row_encoding.h"
#include "cpu/runtime/scratch.h"
#include "cpu/runtime/work_estimate.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kTokensPerItem = 16;
constexpr double kRowBytes = 8192.0;  // what finishing a row costs, in bytes that are moved

const std::byte* freqs_at(const NewLatents& latents, std::int64_t position) {
  const TensorView& freqs = *latents.freqs_cis;
  return freqs.as<const std::byte>() + bytes_for(freqs.dtype, freqs.offset({position, 0}));
}

LatentRow latent_row(const NewLatents& latents, const TokenPlace& place) {
  const std::byte* raw = nullptr;
  if (latents.kv) {
    raw = latents.kv->as<const std::byte>() +
          bytes_for(latents.kv->dtype, latents.kv->offset({place.token, 0}));
  }
  return {.raw = raw,
          .row = place.row,
          .plane = place.plane,
          .freqs = freqs_at(latents, place.position)};
}

}  // namespace

void finish_new_rows(const NewLatents& latents, const Workers& workers, Target target) {
  if (!latents.freqs_cis) return;
  const RowEncoding encoding(latents.rows.layout());
  const LatentKernels& kernels = latent_kernels(target);
  const NewTokens tokens(latents.row_offsets, latents.rows);
  const FinishItem whole{.rows = nullptr,
                         .num_rows = 0,
                         .plan = encoding.plan(),
                         .raw_dtype = latents.kv ? latents.kv->dtype : DType::f32,
                         .latent = latents.kv_norm_gamma->shape[0],
                         .rope = latents.freqs_cis->shape[1],
                         .gamma = latents.kv_norm_gamma->as<const std::byte>(),
                         .gamma_dtype = latents.kv_norm_gamma->dtype,
                         .freqs_dtype = latents.freqs_cis->dtype,
                         .epsilon = latents.epsilon};
  const std::int64_t num_tokens = tokens.count();
  const std::int64_t num_items = (num_tokens + kTokensPerItem - 1) / kTokensPerItem;
  const std::int64_t bytes = kernels.finish_scratch_bytes(whole) / kCacheLine * kCacheLine;
  const std::int64_t worker_bytes = bytes + kCacheLine;
  std::byte* scratch = thread_scratch(worker_bytes * workers.count);
  const double nanoseconds = nanoseconds_of_bytes(static_cast<double>(num_tokens) * kRowBytes);
  parallel_for(num_items, workers.for_nanoseconds(nanoseconds),
               [&](std::int64_t index, int worker) {
                 TokenPlace places[kTokensPerItem];
                 LatentRow rows[kTokensPerItem];
                 FinishItem item = whole;
                 item.rows = rows;
                 const std::int64_t first = index * kTokensPerItem;
                 item.num_rows = std::min(kTokensPerItem, num_tokens - first);
                 tokens.locate(first, std::span(places, static_cast<std::size_t>(item.num_rows)));
                 for (std::int64_t i = 0; i < item.num_rows; ++i)
                   rows[i] = latent_row(latents, places[i]);
                 kernels.finish(item, scratch + worker * worker_bytes);
               });
}

void rotate_queries(const NewLatents& latents, const TensorView& q, const TensorView& out,
                    std::int64_t copied, const Workers& workers, Target target) {
  const LatentKernels& kernels = latent_kernels(target);
  const NewTokens tokens(latents.row_offsets, latents.rows);
  const std::int64_t rope = latents.freqs_cis->shape[1];
  const auto address = [&](const TensorView& tensor, std::int64_t token) {
    const std::int64_t column = tensor.shape[2] - rope - copied;
    return tensor.as<std::byte>() + bytes_for(tensor.dtype, tensor.offset({token, 0, column}));
  };
  const std::int64_t numbers = tokens.count() * q.shape[1] * (rope + copied);
  const double nanoseconds = nanoseconds_of_bytes(
      static_cast<double>(bytes_for(q.dtype, numbers) + bytes_for(out.dtype, numbers)));
  parallel_for(tokens.count(), workers.for_nanoseconds(nanoseconds), [&](std::int64_t token, int) {
    TokenPlace place;
    tokens.locate(token, std::span(&place, 1));
    kernels.rotate({.q = address(q, token),
                    .out = address(out, token),
                    .q_dtype = q.dtype,
                    .out_dtype = out.dtype,
                    .q_head_stride = bytes_for(q.dtype, q.strides[1]),
                    .out_head_stride = bytes_for(out.dtype, out.strides[1]),
                    .num_heads = q.shape[1],
                    .copied = copied,
                    .rope = rope,
                    .freqs = freqs_at(latents, place.position),
                    .freqs_dtype = latents.freqs_cis->dtype});
  });
}

}  // namespace quire::cpu
