// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention for 1–8 new tokens per sequence, in the absorbed form: K and V are
// never built.
//   q'(h) = [ q_nope(h) · w_uk(h)ᵀ | rope(q_rope(h)) ]     [latent + rope]; q itself is not changed
//   s     = scale · q' · row,   raw = softmax(s) · row[0, latent),   out(h) = raw(h) · w_uv(h)ᵀ
// Without w_uk and w_uv, q is q' already and out is raw. `raw` is rounded to q's dtype before w_uv.
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

inline constexpr std::int64_t kMlaDecodeMaxNewTokens = 8;

struct MlaDecodeArgs {
  TensorView q;  // [tokens, heads, nope + rope], or absorbed [tokens, heads, latent + rope]
  TensorView row_offsets;  // u32 [batch + 1]
  PagedKVCache cache;  // MLA, any row format; the new rows are finished in place as in mla_prefill
  std::int64_t layer = 0;
  // Absent with kv_norm_gamma: q's rope part and the new rows are finished already.
  std::optional<TensorView> freqs_cis{};      // [max_pos, rope]
  std::optional<TensorView> kv_norm_gamma{};  // [latent]
  std::optional<TensorView> kv{};             // raw rows [tokens, latent + rope]
  std::optional<TensorView> w_uk{};           // [heads, latent, nope] f32, f16, bf16, fp8
  std::optional<TensorView> w_uk_scale{};     // fp8: f32 [heads, ceil(latent/128), ceil(nope/128)]
  std::optional<TensorView> w_uv{};           // [heads, value, latent]
  std::optional<TensorView> w_uv_scale{};     // fp8: f32 [heads, ceil(value/128), ceil(latent/128)]
  double scale = 0.0;                         // of the un-absorbed head: (nope + rope)^-0.5
  double epsilon = 1e-6;
  Mask mask{};
  std::optional<TensorView> sinks{};  // f32 [heads]
  TensorView out;                     // [tokens, heads, value], absorbed: [tokens, heads, latent]
  std::optional<TensorView> lse{};    // f32 [tokens, heads]
  bool batch_invariant = false;       // a sequence's result is the same bits in any batch
  // Lets a kernel over e4m3 latents round q' and the softmax weights to e4m3 and multiply on fp8 tensor
  // cores: each 128 latent columns of a row of q' by their own power of two, the rope columns where those of
  // the cache are e4m3 too. Results are some percent of a weight off.
  bool allow_fp8_products = false;
  // u32 [batch]: the keys of a sequence, as in flash_attention. Not together with freqs_cis: new rows are
  // keys of their own.
  std::optional<TensorView> key_lengths{};
};

struct MlaDecodeProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  std::int64_t heads = 0;
  std::int64_t latent_dim = 0;
  std::int64_t nope_dim = 0;  // 0: q is absorbed
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;
  double scale = 1.0;
  DType q_dtype = DType::bf16;
  DType out_dtype = DType::bf16;
  DType weight_dtype = DType::bf16;
  MaskSummary mask{};
  bool finishes_rows = true;
  bool batch_invariant = false;
  bool allow_fp8_products = false;
  std::int64_t alignment = 1;  // bytes, of every row of q, out and the cache

  bool operator==(const MlaDecodeProblem&) const = default;
};

// Views, not copies, of the two absorbed weights inside kv_b_proj [heads · (nope + value), latent]
// (and of its block scales, where nope and value are multiples of 128).
struct AbsorbedWeights {
  TensorView w_uk;  // [heads, latent, nope]
  TensorView w_uv;  // [heads, value, latent]
  std::optional<TensorView> w_uk_scale{};
  std::optional<TensorView> w_uv_scale{};
};
QUIRE_API AbsorbedWeights absorb_kv_b_proj(const TensorView& kv_b_proj, std::int64_t heads,
                                           std::int64_t nope,
                                           const std::optional<TensorView>& kv_b_proj_scale = {});

QUIRE_API MlaDecodeProblem validate(const MlaDecodeArgs& args);
QUIRE_API Plan plan(const MlaDecodeProblem& problem, const Context& context = {});
QUIRE_API Prepared<MlaDecodeProblem> prepare(const MlaDecodeProblem& problem,
                                             const Context& context = {});
QUIRE_API Plan supports(const MlaDecodeArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<MlaDecodeProblem>& prepared, const MlaDecodeArgs& args,
                   const Context& context = {});
QUIRE_API void mla_decode(const MlaDecodeArgs& args, const Context& context = {});

}  // namespace quire
