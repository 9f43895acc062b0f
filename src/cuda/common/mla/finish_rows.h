// SPDX-License-Identifier: Apache-2.0
// The new tokens' latent rows, finished: the latent normalised, the rope part rotated, as f32 rows
// that `store` then encodes into the pages in whatever format they have.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include "cuda/common/paging/row_reader.h"
#include "quire/context.h"
#include "quire/paged_kv_cache.h"

namespace quire::cuda {

// freqs_cis [max_pos, rope], cosines and sines alternate.
struct LatentAngles {
  const std::byte* freqs = nullptr;  // null: nothing is rotated
  DType dtype = DType::f32;
  std::int64_t row_stride = 0;
  std::int64_t max_pos = 0;
};

LatentAngles latent_angles(const std::optional<TensorView>& freqs_cis);

// What makes a finished row of a raw one.
struct LatentRowFinish {
  LatentAngles angles;
  const std::byte* gamma = nullptr;  // [latent]; null: rows come finished
  DType gamma_dtype = DType::f32;
  double epsilon = 0.0;
  std::int32_t latent = 0;
};

// What mla_prefill and mla_decode say of their new rows.
struct NewLatentRows {
  const TensorView& row_offsets;
  const PagedKVCache& cache;
  std::int64_t layer;
  const std::optional<TensorView>& freqs_cis;
  const std::optional<TensorView>& kv_norm_gamma;
  const std::optional<TensorView>& kv;
  double epsilon;
  std::int64_t tokens;
  Device device;
};

template <typename Args> NewLatentRows new_latent_rows(const Args& args) {
  return {.row_offsets = args.row_offsets,
          .cache = args.cache,
          .layer = args.layer,
          .freqs_cis = args.freqs_cis,
          .kv_norm_gamma = args.kv_norm_gamma,
          .kv = args.kv,
          .epsilon = args.epsilon,
          .tokens = args.q.shape[0],
          .device = args.q.device};
}

struct FinishRowsParams {
  KvLayerView view{};
  const std::byte* kv = nullptr;  // raw rows [tokens, width]; null: they stand in the cache
  DType kv_dtype = DType::f32;
  std::int64_t kv_token_bytes = 0;
  const std::uint32_t* row_offsets = nullptr;
  std::int64_t tokens = 0;
  LatentRowFinish how;
  float* rows = nullptr;  // [tokens, width], where rows are finished outside of the cache
};

FinishRowsParams finish_params(const NewLatentRows& rows);

// Both steps, through `scratch` f32 [tokens, width]; nothing without freqs_cis: the rows are
// finished already.
void finish_rows(const NewLatentRows& rows, float* scratch, const Context& context);

// Whether a layer's rows are 16-byte vectors of bf16 or f16; whether the new ones are, and become
// such.
bool is_plain_layer(const KvLayerView& view);
bool are_plain_rows(const NewLatentRows& rows);

// Plain rows where they stand, the others by finish_rows, through `scratch` f32 [tokens, width]; nothing without
// freqs_cis.
void finish_latent_rows(const NewLatentRows& rows, float* scratch, const Context& context);

}  // namespace quire::cuda
