// SPDX-License-Identifier: Apache-2.0
// Inputs of the attention ops that own their memory, for tests. The layer used is 1; layer 0 stays
// poisoned.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/ops/flash_attention.h"
#include "quire/ops/mla_decode.h"
#include "quire/ops/mla_prefill.h"
#include "quire/ops/sparse_mla.h"
#include "support/cache_builder.h"
#include "support/host_tensor.h"

namespace quire::test {

inline constexpr std::int64_t kTestLayer = 1;

// q random, every key and value of the layer filled.
struct FlashInputs {
  FlashInputs(const CacheOptions& options, std::int64_t heads, DType dtype = DType::f32);

  FlashAttentionArgs args() const;

  TestCache cache;
  HostTensor q;    // [tokens, heads, head_dim]
  HostTensor out;  // [tokens, heads, head_dim]
  HostTensor lse;  // [tokens, heads]
};

struct MlaShape {
  std::int64_t heads = 2;
  std::int64_t nope = 4;
  std::int64_t rope = 2;
  std::int64_t latent = 6;
  std::int64_t value = 3;
  std::optional<RowFormat> row_format{};  // absent: uniform, in q's dtype
};

// The chunk tensors of mla_prefill.
struct ChunkMemory {
  ChunkMemory(std::int64_t max_chunks, std::int64_t batch, std::int64_t buffer_tokens);

  MlaPrefillChunks view() const;

  HostTensor buffer_row_offsets;  // u32 [max_chunks, batch + 1]
  HostTensor cache_offsets;       // u32 [max_chunks, batch + 1]
  HostTensor buffer_lengths;      // i32 [max_chunks]
  std::int64_t buffer_tokens;
};

// Cached rows filled; the new rows wait, raw, in `kv`. Of the cache's options, kind, heads and row
// format follow `shape`.
struct MlaInputs {
  MlaInputs(CacheOptions options, const MlaShape& shape, DType dtype = DType::f32,
            DType weight_dtype = DType::f32);

  // Plans chunks of `buffer_tokens` rows into `chunks`.
  MlaPrefillArgs prefill_args(std::int64_t buffer_tokens = 1 << 20);
  MlaDecodeArgs decode_args() const;
  SparseMlaArgs sparse_args(const HostTensor& absorbed_q, const HostTensor& indices,
                            const HostTensor& absorbed_out) const;

  MlaShape shape;
  TestCache cache;
  HostTensor q;                // [tokens, heads, nope + rope]
  HostTensor freqs_cis;        // [64, rope]
  HostTensor gamma;            // [latent]
  HostTensor kv;               // [tokens, latent + rope]
  HostTensor kv_b_proj;        // [heads · (nope + value), latent]
  HostTensor kv_b_proj_scale;  // [rows/128, latent/128], fp8 weights only
  HostTensor out;              // [tokens, heads, value]
  HostTensor lse;              // [tokens, heads]
  ChunkMemory chunks;
};

// Angles of different speeds: row p holds cos(p·w), sin(p·w) for each pair.
HostTensor make_freqs(DType dtype, std::int64_t positions, std::int64_t rope);

}  // namespace quire::test
