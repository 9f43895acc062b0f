// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/flash_attention.h"

#include <algorithm>
#include <numeric>

#include "reference/flash_attention.h"
#include "tools/case/case.h"
#include "tools/case/key_blocks.h"
#include "tools/case/mask_spec.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

// The first columns of the tables of the first sequence with new tokens, in those of all behind it.
void share_first_pages(const PagedKVCache& cache, std::int64_t pages, const Lengths& lengths) {
  const auto with_tokens =
      std::ranges::find_if(lengths.added, [](auto count) { return count > 0; });
  const std::int64_t first = with_tokens - lengths.added.begin();
  const auto share = [&](const TensorView& table) {
    auto* ids = table.as<std::uint32_t>();
    for (std::int64_t sequence = first + 1; sequence < table.shape[0]; ++sequence) {
      for (std::int64_t column = 0; column < pages; ++column) {
        ids[table.offset({sequence, column})] = ids[table.offset({first, column})];
      }
    }
  };
  share(cache.page_table);
  if (cache.scales_page_table.has_value()) share(*cache.scales_page_table);
}

// Without a cache queries stand where the last of them is at the last key, before the first one if need be.
Lengths read_attention_lengths(const Fields& fields) {
  Lengths lengths = read_lengths_and_keys(fields);
  if (!fields.flag("ragged", false) || lengths.given_keys.empty()) return lengths;
  for (std::size_t b = 0; b < lengths.added.size(); ++b) {
    lengths.cached[b] = lengths.given_keys[b] - lengths.added[b];
  }
  lengths.given_keys.clear();
  return lengths;
}

class FlashAttentionCase final : public OpCase {
 public:
  explicit FlashAttentionCase(const Fields& fields)
      : lengths_(read_attention_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/false)),
        heads_(fields.integer("heads", 1)),
        value_dim_(fields.integer("value_dim", 1, cache_.width())),
        q_dtype_(fields.dtype("q_dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        out_dtype_(fields.dtype("out_dtype", {DType::f32, DType::f16, DType::bf16}, q_dtype_)),
        mask_(read_mask(fields, cache_, lengths_)),
        scale_(fields.number("scale", 0.0)),
        softcap_(fields.number("softcap", 0.0)),
        alibi_(fields.flag("alibi", false)),
        sinks_(fields.flag("sinks", false)),
        lse_(fields.flag("lse", true)),
        batch_invariant_(fields.flag("batch_invariant", false)),
        allow_fp8_products_(fields.flag("allow_fp8_products", false)),
        shared_prefix_pages_(fields.integer("shared_prefix_pages", 0, 0)),
        max_workspace_bytes_(1024 * fields.integer("max_workspace_kib", 0, 0)),
        ragged_(fields.flag("ragged", false)),
        key_blocks_(read_key_blocks(fields)) {
    if (heads_ % cache_.kv_heads != 0) fields.fail("heads", "a multiple of 'cache.kv_heads'");
    if (value_dim_ > cache_.width())
      fields.fail("value_dim", "at most the width of the cache's rows");
    if (shared_prefix_pages_ * cache_.page_size > lengths_.max_keys())
      fields.fail("shared_prefix_pages", "at most the full pages of the longest sequence");
    if (ragged_ && !takes_ragged()) {
      fields.fail("'ragged' needs uniform rows of floats, without MLA, holes and shared pages");
    }
  }

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache =
        layout == Layout::contiguous
            ? cache_.contiguous_twin(lengths_, /*keep_page_size=*/shared_prefix_pages_ > 0)
            : cache_;
    const std::int64_t tokens = lengths_.tokens();
    FlashAttentionArgs args;
    args.q = build_tensor(memory, seed, "q", q_dtype_, {tokens, heads_, cache_.width()});
    args.row_offsets = build_row_offsets(memory, lengths_);
    if (ragged_) {
      build_ragged_keys(memory, args, seed);
    } else {
      args.cache = build_cache(memory, cache, lengths_, Contents::cached_and_new, seed);
      share_first_pages(args.cache, shared_prefix_pages_, lengths_);
      args.layer = cache.layer;
    }
    if (scale_ != 0.0) args.scale = scale_;
    args.mask = build_mask(memory, mask_, lengths_, seed);
    args.softcap = softcap_;
    if (alibi_)
      args.alibi_slopes = build_tensor(memory, seed, "alibi_slopes", DType::f32, {heads_}, 0.1);
    if (sinks_) args.sinks = build_tensor(memory, seed, "sinks", DType::f32, {heads_});
    args.out = built.output("out", out_dtype_, {tokens, heads_, value_dim_});
    if (lse_) args.lse = built.output("lse", DType::f32, {tokens, heads_});
    args.batch_invariant = batch_invariant_;
    args.allow_fp8_products = allow_fp8_products_;
    args.shared_prefix_pages = shared_prefix_pages_;
    args.max_workspace_bytes = max_workspace_bytes_;
    args.key_lengths = build_key_lengths(memory, lengths_);
    built.empty_tokens = empty_tokens(count_visible(args.mask, mask_, cache_, lengths_));
    if (key_blocks_) build_lists(built, args, seed);
    built.has_sinks = sinks_;
    bind(
        built, args, [](const auto& a, const Context& c) { flash_attention(a, c); },
        [](const FlashAttentionArgs& a, reference::Arithmetic m) {
          reference::flash_attention(a, m);
        });
    return built;
  }

  double flops() const override {
    const double keys =
        key_blocks_ ? key_blocks_->total_keys(lengths_) : total_visible(mask_, cache_, lengths_);
    return 2.0 * keys * static_cast<double>(heads_) *
           static_cast<double>(cache_.width() + value_dim_);
  }
  // Shared keys need to be read once.
  double bytes() const override {
    const double repeated = static_cast<double>(lengths_.batch() - 1) *
                            static_cast<double>(shared_prefix_pages_ * cache_.page_size);
    double keys =
        static_cast<double>(lengths_.total_keys()) - (shared_prefix_pages_ > 0 ? repeated : 0.0);
    // Of those that stand in lists, if all lists are disjoint.
    if (key_blocks_) keys = std::min(keys, key_blocks_->total_keys(lengths_));
    return keys * static_cast<double>(cache_.token_bytes());
  }
  Products products() const override { return products_of(q_dtype_); }
  double footprint() const override {
    const double activations =
        static_cast<double>(lengths_.tokens()) * static_cast<double>(heads_ * cache_.width()) * 4.0;
    const double keys =
        static_cast<double>(lengths_.total_keys()) * static_cast<double>(cache_.token_bytes());
    return keys * static_cast<double>(cache_.layers) + activations;
  }

 private:
  bool takes_ragged() const {
    const RowPart& part = cache_.row_format.parts[0];
    return cache_.row_format.is_uniform() && part.scale_source == ScaleSource::none &&
           is_float(part.dtype) && !cache_.is_mla && cache_.unassigned.empty() &&
           shared_prefix_pages_ == 0;
  }

  void build_lists(Built& built, FlashAttentionArgs& args, std::uint64_t seed) const {
    args.key_blocks = build_key_blocks(built.memory, *key_blocks_, lengths_, cache_.kv_heads, seed);
    args.key_block_size = key_blocks_->block_size;
    if (key_blocks_->lists != "none") return;
    built.empty_tokens.resize(static_cast<std::size_t>(lengths_.tokens()));
    std::iota(built.empty_tokens.begin(), built.empty_tokens.end(), 0);
  }

  // V is as wide as the values alone.
  void build_ragged_keys(Memory& memory, FlashAttentionArgs& args, std::uint64_t seed) const {
    const DType dtype = cache_.row_format.parts[0].dtype;
    const std::int64_t keys = lengths_.total_keys();
    args.k = build_tensor(memory, seed, "k", dtype, {keys, cache_.kv_heads, cache_.width()});
    args.v = build_tensor(memory, seed, "v", dtype, {keys, cache_.kv_heads, value_dim_});
    args.key_offsets = memory.allocate("key_offsets", DType::u32, {lengths_.batch() + 1});
    auto* offsets = args.key_offsets->as<std::uint32_t>();
    offsets[0] = 0;
    for (std::int64_t b = 0; b < lengths_.batch(); ++b) {
      offsets[b + 1] = offsets[b] + static_cast<std::uint32_t>(lengths_.keys(b));
    }
  }

  Lengths lengths_;
  CacheSpec cache_;
  std::int64_t heads_;
  std::int64_t value_dim_;
  DType q_dtype_;
  DType out_dtype_;
  MaskSpec mask_;
  double scale_;  // 0: the op's default
  double softcap_;
  bool alibi_;
  bool sinks_;
  bool lse_;
  bool batch_invariant_;
  bool allow_fp8_products_;
  std::int64_t shared_prefix_pages_;
  std::int64_t max_workspace_bytes_;
  bool ragged_;  // K and V of a ragged batch in place of a cache
  std::optional<KeyBlockSpec> key_blocks_;
};

}  // namespace

std::unique_ptr<OpCase> parse_flash_attention(const Fields& fields) {
  return std::make_unique<FlashAttentionCase>(fields);
}

}  // namespace quire::tools
