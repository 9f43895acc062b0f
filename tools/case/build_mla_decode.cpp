// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/mla_decode.h"

#include "reference/mla_decode.h"
#include "tools/case/case.h"
#include "tools/case/latent_spec.h"
#include "tools/case/mask_spec.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

class MlaDecodeCase final : public OpCase {
 public:
  explicit MlaDecodeCase(const Fields& fields)
      : lengths_(read_lengths_and_keys(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/true)),
        latent_(read_latent(fields, cache_)),
        absorbed_(fields.flag("absorbed", false)),
        split_kv_b_proj_(fields.flag("split_kv_b_proj", false)),
        mask_(read_mask(fields, cache_, lengths_)),
        sinks_(fields.flag("sinks", false)),
        lse_(fields.flag("lse", true)),
        batch_invariant_(fields.flag("batch_invariant", false)),
        allow_fp8_products_(fields.flag("allow_fp8_products", false)) {
    if (lengths_.max_added() > kMlaDecodeMaxNewTokens) fields.fail("'lengths.new' is above 8");
    if (!lengths_.given_keys.empty() && latent_.finishes_rows()) {
      fields.fail("'lengths.keys' needs rows that are finished");
    }
    if (absorbed_ && split_kv_b_proj_) fields.fail("'split_kv_b_proj' needs weights");
  }

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_) : cache_;
    const std::int64_t tokens = lengths_.tokens();
    const std::int64_t heads = latent_.heads;
    MlaDecodeArgs args;
    const std::int64_t q_width = (absorbed_ ? latent_.latent : latent_.nope) + latent_.rope;
    args.q = build_tensor(memory, seed, "q", latent_.q_dtype, {tokens, heads, q_width});
    args.row_offsets = build_row_offsets(memory, lengths_);
    args.cache = build_cache(memory, cache, lengths_, latent_.contents(), seed);
    args.layer = cache.layer;
    const NewRows rows = build_new_rows(memory, latent_, lengths_, seed);
    args.freqs_cis = rows.freqs_cis;
    args.kv_norm_gamma = rows.kv_norm_gamma;
    args.kv = rows.kv;
    if (!absorbed_) build_weights(memory, args, seed);
    args.scale = latent_.scale();
    args.epsilon = latent_.epsilon;
    args.mask = build_mask(memory, mask_, lengths_, seed);
    if (sinks_) args.sinks = build_tensor(memory, seed, "sinks", DType::f32, {heads});
    args.out = built.output("out", latent_.q_dtype,
                            {tokens, heads, absorbed_ ? latent_.latent : latent_.value});
    if (lse_) args.lse = built.output("lse", DType::f32, {tokens, heads});
    args.batch_invariant = batch_invariant_;
    args.allow_fp8_products = allow_fp8_products_;
    args.key_lengths = build_key_lengths(memory, lengths_);
    if (latent_.finishes_rows()) {
      built.written_rows({.cache = args.cache, .layer = args.layer, .lengths = lengths_});
    }
    built.empty_tokens = empty_tokens(count_visible(args.mask, mask_, cache_, lengths_));
    built.has_sinks = sinks_;
    bind(
        built, args, [](const auto& a, const Context& c) { mla_decode(a, c); },
        [](const MlaDecodeArgs& a, reference::Arithmetic m) { reference::mla_decode(a, m); });
    return built;
  }

  double flops() const override {
    const double attention = 2.0 * total_visible(mask_, cache_, lengths_) *
                             static_cast<double>(latent_.heads) *
                             static_cast<double>(2 * latent_.latent + latent_.rope);
    return attention + (absorbed_ ? 0.0 : 2.0 * static_cast<double>(lengths_.tokens()) * weights());
  }
  Products products() const override { return products_of(latent_.q_dtype); }
  double bytes() const override {
    const double rows =
        static_cast<double>(lengths_.total_keys()) * static_cast<double>(cache_.token_bytes());
    return rows + (absorbed_ ? 0.0 : weights() * bits(latent_.weight_dtype) / 8.0);
  }

 private:
  double weights() const {
    return static_cast<double>(latent_.heads * latent_.latent * (latent_.nope + latent_.value));
  }

  void build_weights(Memory& memory, MlaDecodeArgs& args, std::uint64_t seed) const {
    const DType dtype = latent_.weight_dtype;
    if (split_kv_b_proj_) {
      const std::int64_t rows = latent_.heads * (latent_.nope + latent_.value);
      const ProjectionWeight whole =
          build_projection(memory, "kv_b_proj", dtype, rows, latent_.latent, seed);
      const AbsorbedWeights split =
          absorb_kv_b_proj(whole.data, latent_.heads, latent_.nope, whole.scale);
      args.w_uk = split.w_uk;
      args.w_uk_scale = split.w_uk_scale;
      args.w_uv = split.w_uv;
      args.w_uv_scale = split.w_uv_scale;
      return;
    }
    const ProjectionWeight uk = build_head_projection(memory, "w_uk", dtype, latent_.heads,
                                                      latent_.latent, latent_.nope, seed);
    const ProjectionWeight uv = build_head_projection(memory, "w_uv", dtype, latent_.heads,
                                                      latent_.value, latent_.latent, seed);
    args.w_uk = uk.data;
    args.w_uk_scale = uk.scale;
    args.w_uv = uv.data;
    args.w_uv_scale = uv.scale;
  }

  Lengths lengths_;
  CacheSpec cache_;
  LatentSpec latent_;
  bool absorbed_;         // q and out in latent space, no weights
  bool split_kv_b_proj_;  // weights are views of one kv_b_proj
  MaskSpec mask_;
  bool sinks_;
  bool lse_;
  bool batch_invariant_;
  bool allow_fp8_products_;
};

}  // namespace

std::unique_ptr<OpCase> parse_mla_decode(const Fields& fields) {
  return std::make_unique<MlaDecodeCase>(fields);
}

}  // namespace quire::tools
