// SPDX-License-Identifier: Apache-2.0
// DeepSeek's multi-head latent attention over many new tokens, the branch fused:
//   1. q's rope part is rotated in place; the new tokens' cache rows are finished: the latent
//      normalised (RMSNorm), the rope part rotated
//   2. per chunk of the plan: latents gathered from the pages (fp8 weights: quantized per 128),
//      up-projected with kv_b_proj and split per head into K (nope) and V
//   3. attention: q · [K | rope key of the cache row], values V; chunks merged by LSE in fp32
// A batch may mix prefill and decode: sequences of at most chunks.decode_tokens new tokens take the
// absorbed form of mla_decode after step 1, in the same call; they have no rows in the chunks, and
// their K and V are never built.
// Step 1 must happen exactly once per new token and layer: the op is not idempotent.
//
// Rounding points: x · rsqrt(mean x² + ε) is rounded to gamma's dtype before it is multiplied by
// gamma in that dtype; K and V are rounded to q's dtype after the up-projection.
// A NaN or infinity in the latent of a key of the sequence that the mask hides may make out NaN, as in
// flash_attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/mask.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

// Where each sequence's keys stand in the gathered buffer, chunk by chunk. Every span is rounded up
// to whole pages, the spans are laid end to end and the line is cut every `buffer_tokens`.
struct MlaPrefillChunks {
  TensorView buffer_row_offsets;  // u32 [max_chunks, batch + 1]
  TensorView cache_offsets;  // u32 [max_chunks, batch + 1]: first key of each sequence in the chunk
  TensorView buffer_lengths;  // i32 [max_chunks]: rows in use, -1 = chunk unused
  std::int64_t buffer_tokens = 16384;
  // 0 to 8: sequences of at most so many new tokens are left out and decoded. With it no softcap,
  // no ALiBi, no trees and key intervals in the mask; fp8 weights need nope and value of a multiple of 128.
  std::int64_t decode_tokens = 0;

  bool decodes(std::int64_t new_tokens) const {
    return decode_tokens > 0 && new_tokens <= decode_tokens;
  }
};

struct MlaPrefillPlanArgs {
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;
  std::int64_t layer = 0;
  MlaPrefillChunks chunks;  // written; too few chunks for the tokens is an error
};

struct MlaPrefillArgs {
  TensorView
      q;  // [tokens, heads, nope + rope] f32, f16, bf16; the rope columns are rotated in place
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;      // MLA, row = latent + rope; the new rows are finished in place
  std::int64_t layer = 0;
  // [max_pos, rope] cos, sin interleaved; pairs are (2j, 2j+1). Absent with kv_norm_gamma: q and
  // the rows are finished.
  std::optional<TensorView> freqs_cis{};
  std::optional<TensorView> kv_norm_gamma{};  // [latent]
  // Raw latent + rope rows of the new tokens [tokens, latent + rope]; absent: they are in the cache
  // already.
  std::optional<TensorView> kv{};
  TensorView kv_b_proj;  // [heads · (nope + value), latent] per head the K rows, then the V rows;
                         // f32, f16, bf16, fp8
  std::optional<TensorView> kv_b_proj_scale{};  // fp8: f32 [ceil(rows/128), ceil(latent/128)]
  double scale = 0.0;
  double epsilon = 1e-6;
  MlaPrefillChunks chunks;
  Mask mask{};
  double softcap = 0.0;
  std::optional<TensorView> alibi_slopes{};  // f32 [heads]
  std::optional<TensorView> sinks{};         // f32 [heads]
  TensorView out;                            // [tokens, heads, value]
  std::optional<TensorView> lse{};           // f32 [tokens, heads]
  // Lets a kernel round q, each row by its own power of two, K, V, the rope columns and the weights
  // to e4m3, and multiply on fp8 tensor cores: results are some percent of a weight off.
  bool allow_fp8_products = false;
  // A sequence's result is the same bits in any batch whose keys fit into one chunk.
  bool batch_invariant = false;
};

struct MlaPrefillPlanProblem {
  Device device{};

  bool operator==(const MlaPrefillPlanProblem&) const = default;
};

struct MlaPrefillProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t heads = 0;
  std::int64_t latent_dim = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;
  double scale = 1.0;
  DType q_dtype = DType::bf16;
  DType weight_dtype = DType::bf16;
  DType out_dtype = DType::bf16;
  std::int64_t alignment = 1;        // bytes, of every row of q, out and kv_b_proj
  std::int64_t cache_alignment = 1;  // bytes, of every row of the cache
  std::int64_t buffer_tokens = 0;
  std::int64_t max_chunks = 0;
  std::int64_t decode_tokens = 0;
  MaskSummary mask{};
  bool finishes_rows = true;
  bool allow_fp8_products = false;
  bool batch_invariant = false;

  bool operator==(const MlaPrefillProblem&) const = default;
};

// Chunks that the batch needs, where its lengths are on the host. On a device they are not read, and
// the answer is what full page tables need: batch · max_pages · page_size tokens. Chunks that the plan
// leaves unused cost little (their kernels end at once), so the bound will do unless the tables are
// far wider than the sequences are long; then count on the host and pass that.
QUIRE_API std::int64_t mla_prefill_num_chunks(const TensorView& row_offsets,
                                              const PagedKVCache& cache, std::int64_t buffer_tokens,
                                              std::int64_t decode_tokens = 0);
QUIRE_API MlaPrefillPlanProblem validate(const MlaPrefillPlanArgs& args);
QUIRE_API Plan plan(const MlaPrefillPlanProblem& problem, const Context& context = {});
QUIRE_API Prepared<MlaPrefillPlanProblem> prepare(const MlaPrefillPlanProblem& problem,
                                                  const Context& context = {});
QUIRE_API Plan supports(const MlaPrefillPlanArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<MlaPrefillPlanProblem>& prepared, const MlaPrefillPlanArgs& args,
                   const Context& context = {});
QUIRE_API void mla_prefill_plan(const MlaPrefillPlanArgs& args, const Context& context = {});

QUIRE_API MlaPrefillProblem validate(const MlaPrefillArgs& args);
QUIRE_API Plan plan(const MlaPrefillProblem& problem, const Context& context = {});
QUIRE_API Prepared<MlaPrefillProblem> prepare(const MlaPrefillProblem& problem,
                                              const Context& context = {});
QUIRE_API Plan supports(const MlaPrefillArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<MlaPrefillProblem>& prepared, const MlaPrefillArgs& args,
                   const Context& context = {});
QUIRE_API void mla_prefill(const MlaPrefillArgs& args, const Context& context = {});

}  // namespace quire
