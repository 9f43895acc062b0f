// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/mla_prefill.h"

#include <algorithm>

#include "reference/mla_prefill.h"
#include "reference/mla_prefill_plan.h"
#include "tools/case/case.h"
#include "tools/case/latent_spec.h"
#include "tools/case/mask_spec.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

struct ChunkSpec {
  explicit ChunkSpec(const Fields& fields)
      : buffer_tokens(fields.integer("buffer_tokens", 1, 16384)),
        decode_tokens(fields.integer("decode_tokens", 0, 0)) {}

  bool leaves_out(const Lengths& lengths, std::int64_t sequence) const {
    return decode_tokens > 0 && lengths.added[static_cast<std::size_t>(sequence)] <= decode_tokens;
  }

  std::int64_t buffer_tokens;
  std::int64_t decode_tokens;
};

// One chunk more than the batch needs, so that an unused one is always there; none where every sequence is decoded.
MlaPrefillChunks allocate_chunks(Memory& memory, const CacheSpec& cache, const Lengths& lengths,
                                 const ChunkSpec& spec) {
  std::int64_t rows = 0;
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    if (spec.leaves_out(lengths, b)) continue;
    rows += (lengths.keys(b) + cache.page_size - 1) / cache.page_size * cache.page_size;
  }
  const std::int64_t max_chunks =
      rows == 0 ? 0 : (rows + spec.buffer_tokens - 1) / spec.buffer_tokens + 1;
  const std::int64_t columns = lengths.batch() + 1;
  return {.buffer_row_offsets =
              memory.allocate("buffer_row_offsets", DType::u32, {max_chunks, columns}),
          .cache_offsets = memory.allocate("cache_offsets", DType::u32, {max_chunks, columns}),
          .buffer_lengths = memory.allocate("buffer_lengths", DType::i32, {max_chunks}),
          .buffer_tokens = spec.buffer_tokens,
          .decode_tokens = spec.decode_tokens};
}

class MlaPrefillCase final : public OpCase {
 public:
  explicit MlaPrefillCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/true)),
        latent_(read_latent(fields, cache_)),
        chunks_(fields),
        keep_page_size_(fields.has("buffer_tokens")),
        mask_(read_mask(fields, cache_, lengths_)),
        softcap_(fields.number("softcap", 0.0)),
        alibi_(fields.flag("alibi", false)),
        sinks_(fields.flag("sinks", false)),
        lse_(fields.flag("lse", true)),
        allow_fp8_products_(fields.flag("allow_fp8_products", false)),
        batch_invariant_(fields.flag("batch_invariant", false)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_, keep_page_size_) : cache_;
    const std::int64_t tokens = lengths_.tokens();
    const std::int64_t heads = latent_.heads;
    MlaPrefillArgs args;
    args.q = build_tensor(memory, seed, "q", latent_.q_dtype,
                          {tokens, heads, latent_.nope + latent_.rope});
    args.row_offsets = build_row_offsets(memory, lengths_);
    args.cache = build_cache(memory, cache, lengths_, latent_.contents(), seed);
    args.layer = cache.layer;
    const NewRows rows = build_new_rows(memory, latent_, lengths_, seed);
    args.freqs_cis = rows.freqs_cis;
    args.kv_norm_gamma = rows.kv_norm_gamma;
    args.kv = rows.kv;
    const ProjectionWeight weight =
        build_projection(memory, "kv_b_proj", latent_.weight_dtype,
                         heads * (latent_.nope + latent_.value), latent_.latent, seed);
    args.kv_b_proj = weight.data;
    args.kv_b_proj_scale = weight.scale;
    args.scale = latent_.scale();
    args.epsilon = latent_.epsilon;
    args.chunks = allocate_chunks(memory, cache, lengths_, chunks_);
    reference::mla_prefill_plan({.row_offsets = args.row_offsets,
                                 .cache = args.cache,
                                 .layer = args.layer,
                                 .chunks = args.chunks});
    args.mask = build_mask(memory, mask_, lengths_, seed);
    args.softcap = softcap_;
    args.allow_fp8_products = allow_fp8_products_;
    args.batch_invariant = batch_invariant_;
    if (alibi_)
      args.alibi_slopes = build_tensor(memory, seed, "alibi_slopes", DType::f32, {heads}, 0.1);
    if (sinks_) args.sinks = build_tensor(memory, seed, "sinks", DType::f32, {heads});
    declare_outputs(built, args);
    return built;
  }

  double flops() const override {
    const double attention = 2.0 * total_visible(mask_, cache_, lengths_) *
                             static_cast<double>(latent_.heads) *
                             static_cast<double>(latent_.nope + latent_.rope + latent_.value);
    return attention + 2.0 * static_cast<double>(projected_keys()) * weight_elements();
  }
  Products products() const override { return products_of(latent_.q_dtype); }
  double bytes() const override {
    return weight_elements() * bits(latent_.weight_dtype) / 8.0 +
           static_cast<double>(lengths_.total_keys()) * static_cast<double>(cache_.token_bytes());
  }

 private:
  // The definition's products: decoded sequences count as if their K and V existed, but not what
  // building those would cost.
  std::int64_t projected_keys() const {
    std::int64_t keys = 0;
    for (std::int64_t b = 0; b < lengths_.batch(); ++b) {
      if (!chunks_.leaves_out(lengths_, b)) keys += lengths_.keys(b);
    }
    return keys;
  }
  double weight_elements() const {
    return static_cast<double>(latent_.heads * (latent_.nope + latent_.value) * latent_.latent);
  }

  void declare_outputs(Built& built, MlaPrefillArgs& args) const {
    const std::int64_t tokens = lengths_.tokens();
    args.out = built.output("out", latent_.q_dtype, {tokens, latent_.heads, latent_.value});
    if (lse_) args.lse = built.output("lse", DType::f32, {tokens, latent_.heads});
    if (latent_.finishes_rows()) {
      built.in_place("q", args.q);
      built.written_rows({.cache = args.cache, .layer = args.layer, .lengths = lengths_});
    }
    built.empty_tokens = empty_tokens(count_visible(args.mask, mask_, cache_, lengths_));
    built.has_sinks = sinks_;
    bind(
        built, args, [](const auto& a, const Context& c) { mla_prefill(a, c); },
        [](const MlaPrefillArgs& a, reference::Arithmetic m) { reference::mla_prefill(a, m); });
  }

  Lengths lengths_;
  CacheSpec cache_;
  LatentSpec latent_;
  ChunkSpec chunks_;
  bool keep_page_size_;  // chunks are cut at pages: the twin must have the same ones
  MaskSpec mask_;
  double softcap_;
  bool alibi_;
  bool sinks_;
  bool lse_;
  bool allow_fp8_products_;
  bool batch_invariant_;
};

class MlaPrefillPlanCase final : public OpCase {
 public:
  explicit MlaPrefillPlanCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/true)),
        chunks_(fields) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_, true) : cache_;
    MlaPrefillPlanArgs args;
    args.row_offsets = build_row_offsets(built.memory, lengths_);
    args.cache = build_cache(built.memory, cache, lengths_, Contents::cached, seed);
    args.layer = cache.layer;
    args.chunks = allocate_chunks(built.memory, cache, lengths_, chunks_);
    built.in_place("buffer_row_offsets", args.chunks.buffer_row_offsets);
    built.in_place("cache_offsets", args.chunks.cache_offsets);
    built.in_place("buffer_lengths", args.chunks.buffer_lengths);
    bind(
        built, args, [](const auto& a, const Context& c) { mla_prefill_plan(a, c); },
        [](const MlaPrefillPlanArgs& a) { reference::mla_prefill_plan(a); });
    return built;
  }

  double flops() const override { return 0.0; }
  double bytes() const override { return 4.0 * static_cast<double>(2 * lengths_.batch()); }

 private:
  Lengths lengths_;
  CacheSpec cache_;
  ChunkSpec chunks_;
};

}  // namespace

std::unique_ptr<OpCase> parse_mla_prefill(const Fields& fields) {
  return std::make_unique<MlaPrefillCase>(fields);
}

std::unique_ptr<OpCase> parse_mla_prefill_plan(const Fields& fields) {
  return std::make_unique<MlaPrefillPlanCase>(fields);
}

}  // namespace quire::tools
