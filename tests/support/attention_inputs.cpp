// SPDX-License-Identifier: Apache-2.0
#include "support/attention_inputs.h"

#include <cmath>
#include <utility>
#include <vector>

#include "reference/mla_prefill_plan.h"

namespace quire::test {
namespace {

constexpr std::int64_t kMaxPosition = 64;
constexpr double kEpsilon = 1e-6;

CacheOptions mla_options(CacheOptions options, const MlaShape& shape, DType dtype) {
  const auto width = static_cast<std::int32_t>(shape.latent + shape.rope);
  options.is_mla = true;
  options.num_kv_heads = 1;
  options.row_format = shape.row_format.value_or(RowFormat::uniform(dtype, width));
  return options;
}

std::int64_t blocks_of(std::int64_t size) {
  return (size + 127) / 128;
}

}  // namespace

FlashInputs::FlashInputs(const CacheOptions& options, std::int64_t heads, DType dtype)
    : cache(options) {
  const std::int64_t tokens = cache.num_tokens();
  const std::int64_t head_dim = options.row_format.width();
  q = HostTensor::random(dtype, {tokens, heads, head_dim}, 1);
  out = HostTensor(dtype, {tokens, heads, head_dim});
  lse = HostTensor(DType::f32, {tokens, heads});
  cache.fill_cached(kTestLayer, 2);
  cache.fill_new(kTestLayer, 3);
}

FlashAttentionArgs FlashInputs::args() const {
  return {.q = q.view(),
          .row_offsets = cache.row_offsets(),
          .cache = cache.view(),
          .layer = kTestLayer,
          .out = out.view(),
          .lse = lse.view()};
}

ChunkMemory::ChunkMemory(std::int64_t max_chunks, std::int64_t batch, std::int64_t tokens)
    : buffer_row_offsets(DType::u32, {max_chunks, batch + 1}),
      cache_offsets(DType::u32, {max_chunks, batch + 1}),
      buffer_lengths(DType::i32, {max_chunks}),
      buffer_tokens(tokens) {}

MlaPrefillChunks ChunkMemory::view() const {
  return {.buffer_row_offsets = buffer_row_offsets.view(),
          .cache_offsets = cache_offsets.view(),
          .buffer_lengths = buffer_lengths.view(),
          .buffer_tokens = buffer_tokens};
}

MlaInputs::MlaInputs(CacheOptions options, const MlaShape& mla_shape, DType dtype,
                     DType weight_dtype)
    : shape(mla_shape),
      cache(mla_options(std::move(options), mla_shape, dtype)),
      freqs_cis(make_freqs(DType::f32, kMaxPosition, mla_shape.rope)),
      chunks(1, 0, 1) {
  const std::int64_t tokens = cache.num_tokens();
  const std::int64_t rows = shape.heads * (shape.nope + shape.value);
  q = HostTensor::random(dtype, {tokens, shape.heads, shape.nope + shape.rope}, 11);
  gamma = HostTensor::random(dtype, {shape.latent}, 12);
  kv = HostTensor::random(dtype, {tokens, shape.latent + shape.rope}, 13, 2.0);
  kv_b_proj = HostTensor::random(weight_dtype, {rows, shape.latent}, 14);
  if (is_fp8(weight_dtype)) {
    kv_b_proj_scale =
        HostTensor::random(DType::f32, {blocks_of(rows), blocks_of(shape.latent)}, 15, 0.5);
  }
  out = HostTensor(dtype, {tokens, shape.heads, shape.value});
  lse = HostTensor(DType::f32, {tokens, shape.heads});
  cache.fill_cached(kTestLayer, 16);
}

MlaPrefillArgs MlaInputs::prefill_args(std::int64_t buffer_tokens) {
  const PagedKVCache view = cache.view();
  const std::int64_t needed =
      reference::mla_prefill_num_chunks(cache.row_offsets(), view, buffer_tokens);
  chunks = ChunkMemory(needed + 1, view.batch(), buffer_tokens);
  reference::mla_prefill_plan({.row_offsets = cache.row_offsets(),
                               .cache = view,
                               .layer = kTestLayer,
                               .chunks = chunks.view()});
  MlaPrefillArgs args{.q = q.view(),
                      .row_offsets = cache.row_offsets(),
                      .cache = view,
                      .layer = kTestLayer,
                      .freqs_cis = freqs_cis.view(),
                      .kv_norm_gamma = gamma.view(),
                      .kv = kv.view(),
                      .kv_b_proj = kv_b_proj.view(),
                      .scale = 1.0 / std::sqrt(static_cast<double>(shape.nope + shape.rope)),
                      .epsilon = kEpsilon,
                      .chunks = chunks.view(),
                      .out = out.view(),
                      .lse = lse.view()};
  if (is_fp8(args.kv_b_proj.dtype)) args.kv_b_proj_scale = kv_b_proj_scale.view();
  return args;
}

MlaDecodeArgs MlaInputs::decode_args() const {
  std::optional<TensorView> scale;
  if (is_fp8(kv_b_proj.view().dtype)) scale = kv_b_proj_scale.view();
  const AbsorbedWeights weights =
      absorb_kv_b_proj(kv_b_proj.view(), shape.heads, shape.nope, scale);
  return {.q = q.view(),
          .row_offsets = cache.row_offsets(),
          .cache = cache.view(),
          .layer = kTestLayer,
          .freqs_cis = freqs_cis.view(),
          .kv_norm_gamma = gamma.view(),
          .kv = kv.view(),
          .w_uk = weights.w_uk,
          .w_uk_scale = weights.w_uk_scale,
          .w_uv = weights.w_uv,
          .w_uv_scale = weights.w_uv_scale,
          .scale = 1.0 / std::sqrt(static_cast<double>(shape.nope + shape.rope)),
          .epsilon = kEpsilon,
          .out = out.view(),
          .lse = lse.view()};
}

SparseMlaArgs MlaInputs::sparse_args(const HostTensor& absorbed_q, const HostTensor& indices,
                                     const HostTensor& absorbed_out) const {
  return {.q = absorbed_q.view(),
          .row_offsets = cache.row_offsets(),
          .cache = cache.view(),
          .layer = kTestLayer,
          .indices = indices.view(),
          .scale = 0.5,
          .out = absorbed_out.view(),
          .lse = lse.view()};
}

HostTensor make_freqs(DType dtype, std::int64_t positions, std::int64_t rope) {
  std::vector<double> values;
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t pair = 0; pair < rope / 2; ++pair) {
      const double angle = static_cast<double>(position) / (1.0 + 3.0 * static_cast<double>(pair));
      values.push_back(std::cos(angle));
      values.push_back(std::sin(angle));
    }
  }
  return HostTensor::of(dtype, {positions, rope}, values);
}

}  // namespace quire::test
