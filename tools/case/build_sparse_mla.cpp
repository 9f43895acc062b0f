// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/sparse_mla.h"

#include <cmath>
#include <numeric>

#include "reference/sparse_mla.h"
#include "tools/case/case.h"
#include "tools/case/mask_spec.h"
#include "tools/case/op_parsers.h"
#include "tools/case/sparse_indices.h"

namespace quire::tools {
namespace {

// One stream of rows: a cache and the positions chosen from it.
struct SparseStream {
  CacheSpec cache;
  std::int64_t top_k = 0;
  std::string kind;
  bool with_lengths = false;
  std::int64_t tokens_per_row = 1;
};

// lengths: of its rows.
SparseStream read_stream(const Fields& fields, const Lengths& lengths) {
  return {.cache = read_cache(fields, lengths, /*is_mla=*/true),
          .top_k = fields.integer("top_k", 1),
          .kind = fields.choice("indices", {"chosen", "hostile", "none"}, "chosen"),
          .with_lengths = fields.flag("topk_lengths", false)};
}

std::optional<SparseStream> read_extra(const Fields& fields, const Lengths& lengths) {
  if (!fields.has("extra")) return std::nullopt;
  const Fields extra = fields.object("extra");
  const std::int64_t tokens_per_row = extra.integer("tokens_per_row", 1, 1);
  SparseStream stream = read_stream(extra, compressed(lengths, tokens_per_row));
  stream.tokens_per_row = tokens_per_row;
  extra.finish();
  return stream;
}

class SparseMlaCase final : public OpCase {
 public:
  explicit SparseMlaCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        main_(read_stream(fields, lengths_)),
        extra_(read_extra(fields, lengths_)),
        heads_(fields.integer("heads", 1)),
        q_dtype_(fields.dtype("q_dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        values_(fields.integer("values", 1, main_.cache.latent)),
        scale_(fields.number("scale", 0.0)),
        sinks_(fields.flag("sinks", false)),
        lse_(fields.flag("lse", true)),
        batch_invariant_(fields.flag("batch_invariant", false)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache = in_layout(main_.cache, layout, lengths_);
    const std::int64_t tokens = lengths_.tokens();
    SparseMlaArgs args;
    args.q = build_tensor(memory, seed, "q", q_dtype_, {tokens, heads_, cache.width()});
    args.row_offsets = build_row_offsets(memory, lengths_);
    args.cache = build_cache(memory, cache, lengths_, Contents::cached_and_new, seed);
    args.layer = cache.layer;
    const SparseIndices chosen = build_sparse_indices(memory, "indices", main_.kind, main_.top_k,
                                                      main_.with_lengths, lengths_, seed);
    args.indices = chosen.indices;
    args.topk_lengths = chosen.lengths;
    args.scale = scale_ != 0.0 ? scale_ : 1.0 / std::sqrt(static_cast<double>(cache.width()));
    if (sinks_) args.sinks = build_tensor(memory, seed, "sinks", DType::f32, {heads_});
    std::vector<std::int64_t> present = count_present(chosen, main_.cache, lengths_);
    if (extra_.has_value()) args.extra = build_extra(memory, layout, seed, present);
    args.out = built.output("out", q_dtype_, {tokens, heads_, values_});
    if (lse_) args.lse = built.output("lse", DType::f32, {tokens, heads_});
    args.batch_invariant = batch_invariant_;
    built.empty_tokens = empty_tokens(present);
    built.has_sinks = sinks_;
    bind(
        built, args, [](const auto& a, const Context& c) { sparse_mla(a, c); },
        [](const SparseMlaArgs& a, reference::Arithmetic m) { reference::sparse_mla(a, m); });
    return built;
  }

  double flops() const override {
    double total = 2.0 * slots(main_) * static_cast<double>(main_.cache.width() + values_);
    if (extra_.has_value()) {
      total += 2.0 * slots(*extra_) * static_cast<double>(extra_->cache.width() + values_);
    }
    return total * static_cast<double>(heads_);
  }
  Products products() const override { return products_of(q_dtype_); }
  double bytes() const override {
    double total = slots(main_) * static_cast<double>(main_.cache.token_bytes());
    if (extra_.has_value())
      total += slots(*extra_) * static_cast<double>(extra_->cache.token_bytes());
    return total;
  }
  double footprint() const override {
    return main_.cache.total_bytes(lengths_) +
           static_cast<double>(lengths_.tokens()) *
               static_cast<double>(main_.top_k * 4 + heads_ * main_.cache.width() * 4);
  }

 private:
  CacheSpec in_layout(const CacheSpec& cache, Layout layout, const Lengths& lengths) const {
    return layout == Layout::contiguous ? cache.contiguous_twin(lengths) : cache;
  }

  // The second stream; its keys are added to those that each token has `present`.
  SparseExtra build_extra(Memory& memory, Layout layout, std::uint64_t seed,
                          std::vector<std::int64_t>& present) const {
    const Lengths rows = compressed(lengths_, extra_->tokens_per_row);
    const CacheSpec cache = in_layout(extra_->cache, layout, rows);
    const SparseIndices chosen =
        build_sparse_indices(memory, "extra_indices", extra_->kind, extra_->top_k,
                             extra_->with_lengths, lengths_, seed, extra_->tokens_per_row);
    const std::vector<std::int64_t> more =
        count_present(chosen, extra_->cache, lengths_, extra_->tokens_per_row);
    for (std::size_t i = 0; i < present.size(); ++i) present[i] += more[i];
    SparseExtra extra{
        .cache = build_cache(memory, cache, rows, Contents::cached_and_new, seed, "extra"),
        .layer = cache.layer,
        .indices = chosen.indices,
        .lengths = chosen.lengths,
        .tokens_per_row = extra_->tokens_per_row};
    count_tokens(extra.cache, lengths_);
    return extra;
  }

  // Slots of the batch that can hold a key: a short sequence fills fewer than top_k.
  double slots(const SparseStream& stream) const {
    double total = 0.0;
    for (std::int64_t b = 0; b < lengths_.batch(); ++b) {
      const std::int64_t cached = lengths_.cached[static_cast<std::size_t>(b)];
      for (std::int64_t i = 0; i < lengths_.added[static_cast<std::size_t>(b)]; ++i) {
        const std::int64_t rows = (cached + i + 1) / stream.tokens_per_row;
        total += static_cast<double>(std::min(stream.top_k, rows));
      }
    }
    return total;
  }

  Lengths lengths_;
  SparseStream main_;
  std::optional<SparseStream> extra_;
  std::int64_t heads_;
  DType q_dtype_;
  std::int64_t values_;  // columns of the result: all of a row where it is key and value
  double scale_;         // 0: that of the width
  bool sinks_;
  bool lse_;
  bool batch_invariant_;
};

}  // namespace

std::unique_ptr<OpCase> parse_sparse_mla(const Fields& fields) {
  return std::make_unique<SparseMlaCase>(fields);
}

}  // namespace quire::tools
