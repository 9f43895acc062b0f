// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/mla_indexer.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "reference/mla_indexer.h"
#include "tools/case/case.h"
#include "tools/case/mask_spec.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

// Exact or not, a row must be a legitimate selection by the oracle's scores.
std::string find_fault(const MlaIndexerArgs& args) {
  for (std::int64_t token = 0; token < args.out.shape[0]; ++token) {
    const auto* row = args.out.as<const std::int32_t>() + token * args.out.strides[0];
    const std::string fault = reference::selection_fault(
        args, token, std::span(row, static_cast<std::size_t>(args.top_k)));
    if (!fault.empty()) return fmt::format("token {}: {}", token, fault);
    if (!args.scores.has_value()) continue;
    const auto* scores = args.scores->as<const float>() + token * args.scores->strides[0];
    const std::string wrong =
        reference::scores_fault(args, token, std::span(row, static_cast<std::size_t>(args.top_k)),
                                std::span(scores, static_cast<std::size_t>(args.top_k)));
    if (!wrong.empty()) return fmt::format("token {}: {}", token, wrong);
  }
  return "";
}

class MlaIndexerCase final : public OpCase {
 public:
  explicit MlaIndexerCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        tokens_per_key_(fields.integer("tokens_per_key", 1, 1)),
        keys_(compressed(lengths_, tokens_per_key_)),
        cache_(read_cache(fields, keys_, /*is_mla=*/true)),
        heads_(fields.integer("heads", 1)),
        top_k_(fields.integer("top_k", 1)),
        mask_(read_mask(fields, cache_, lengths_)),
        data_(fields.choice("data", {"random", "all_equal", "all_negative"}, "random")),
        scores_(fields.flag("scores", false)),
        batch_invariant_(fields.flag("batch_invariant", false)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache = layout == Layout::contiguous ? cache_.contiguous_twin(keys_) : cache_;
    const std::int64_t tokens = lengths_.tokens();
    MlaIndexerArgs args;
    // Equal scores everywhere, so that only the tie rule decides: q = 0. Scores below 0: negative
    // weights.
    static constexpr std::byte kZero{0};
    const auto shape = {tokens, heads_, cache_.width()};
    args.q = data_ == "all_equal"
                 ? memory.allocate_repeating("q", DType::fp8_e4m3, shape, {&kZero, 1})
                 : build_tensor(memory, seed, "q", DType::fp8_e4m3, shape, 60.0);
    args.q_scale = build_tensor(memory, seed, "q_scale", DType::f32, {tokens, heads_}, 0.02,
                                data_ == "all_negative" ? -0.1 : 0.0);
    args.row_offsets = build_row_offsets(memory, lengths_);
    args.cache = build_cache(memory, cache, keys_, Contents::cached_and_new, seed);
    count_tokens(args.cache, lengths_);
    args.tokens_per_key = tokens_per_key_;
    args.layer = cache.layer;
    args.top_k = top_k_;
    args.mask = build_mask(memory, mask_, lengths_, seed);
    args.out = built.output("out", DType::i32, {tokens, top_k_});
    if (scores_) args.scores = built.output("scores", DType::f32, {tokens, top_k_});
    args.batch_invariant = batch_invariant_;
    built.verify = [args] { return find_fault(args); };
    built.verifies_floats = true;
    bind(
        built, args, [](const auto& a, const Context& c) { mla_indexer(a, c); },
        [](const MlaIndexerArgs& a) { reference::mla_indexer(a); });
    return built;
  }

  double flops() const override {
    return 2.0 * total_visible(mask_, cache_, lengths_) / static_cast<double>(tokens_per_key_) *
           static_cast<double>(heads_) * static_cast<double>(cache_.width());
  }
  Products products() const override { return products_of(DType::fp8_e4m3); }
  double bytes() const override {
    return static_cast<double>(keys_.total_keys()) * static_cast<double>(cache_.token_bytes());
  }
  double footprint() const override {
    return bytes() * static_cast<double>(cache_.layers) +
           static_cast<double>(lengths_.tokens()) * static_cast<double>(heads_ * 132 + top_k_ * 4);
  }

 private:
  Lengths lengths_;
  std::int64_t tokens_per_key_;
  Lengths keys_;
  CacheSpec cache_;
  std::int64_t heads_;
  std::int64_t top_k_;
  MaskSpec mask_;
  std::string data_;
  bool scores_;
  bool batch_invariant_;
};

}  // namespace

std::unique_ptr<OpCase> parse_mla_indexer(const Fields& fields) {
  return std::make_unique<MlaIndexerCase>(fields);
}

}  // namespace quire::tools
