// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/select_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "reference/select_blocks.h"
#include "tools/case/case.h"
#include "tools/case/mask_spec.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

// Exact or not, a row must be a legitimate selection by the oracle's scores.
std::string find_fault(const SelectBlocksArgs& args) {
  for (std::int64_t token = 0; token < args.out.shape[0]; ++token) {
    for (std::int64_t head = 0; head < args.out.shape[1]; ++head) {
      const auto* row = args.out.as<const std::int32_t>() + args.out.offset({token, head, 0});
      const std::string fault = reference::block_selection_fault(
          args, token, head, std::span(row, static_cast<std::size_t>(args.out.shape[2])));
      if (!fault.empty()) return fmt::format("token {}, head {}: {}", token, head, fault);
    }
  }
  return "";
}

class SelectBlocksCase final : public OpCase {
 public:
  explicit SelectBlocksCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/false)),
        heads_(fields.integer("heads", 1)),
        q_dtype_(fields.dtype("q_dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        block_size_(fields.integer("block_size", 1)),
        max_blocks_(fields.integer("max_blocks", 1)),
        first_blocks_(fields.integer("first_blocks", 0, 0)),
        local_blocks_(fields.integer("local_blocks", 0, 1)),
        mask_(read_mask(fields, cache_, lengths_)),
        data_(fields.choice("data", {"random", "all_equal"}, "random")) {
    if (heads_ % cache_.kv_heads != 0) fields.fail("heads", "a multiple of 'cache.kv_heads'");
    if (first_blocks_ + local_blocks_ > max_blocks_) {
      fields.fail("max_blocks", "at least first_blocks + local_blocks");
    }
  }

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_) : cache_;
    const std::int64_t tokens = lengths_.tokens();
    SelectBlocksArgs args;
    // Equal scores everywhere, so that only the tie rule decides: q = 0.
    args.q = build_tensor(memory, seed, "q", q_dtype_, {tokens, heads_, cache_.width()},
                          data_ == "all_equal" ? 0.0 : 1.0);
    args.row_offsets = build_row_offsets(memory, lengths_);
    args.cache = build_cache(memory, cache, lengths_, Contents::cached_and_new, seed);
    args.layer = cache.layer;
    args.block_size = block_size_;
    args.first_blocks = first_blocks_;
    args.local_blocks = local_blocks_;
    args.mask = build_mask(memory, mask_, lengths_, seed);
    args.out = built.output("out", DType::i32, {tokens, heads_, max_blocks_});
    built.verify = [args] { return find_fault(args); };
    bind(
        built, args, [](const auto& a, const Context& c) { select_blocks(a, c); },
        [](const SelectBlocksArgs& a) { reference::select_blocks(a); });
    return built;
  }

  double flops() const override {
    return 2.0 * total_visible(mask_, cache_, lengths_) * static_cast<double>(heads_) *
           static_cast<double>(cache_.width());
  }
  Products products() const override { return products_of(q_dtype_); }
  double bytes() const override {
    const double sides = cache_.is_mla ? 1.0 : 0.5;  // V is not read
    return static_cast<double>(lengths_.total_keys()) * sides *
           static_cast<double>(cache_.token_bytes());
  }
  double footprint() const override {
    return static_cast<double>(lengths_.total_keys()) * static_cast<double>(cache_.token_bytes()) *
               static_cast<double>(cache_.layers) +
           static_cast<double>(lengths_.tokens() * heads_) *
               static_cast<double>(cache_.width() * 4 + max_blocks_ * 4);
  }

 private:
  Lengths lengths_;
  CacheSpec cache_;
  std::int64_t heads_;
  DType q_dtype_;
  std::int64_t block_size_;
  std::int64_t max_blocks_;
  std::int64_t first_blocks_;
  std::int64_t local_blocks_;
  MaskSpec mask_;
  std::string data_;
};

}  // namespace

std::unique_ptr<OpCase> parse_select_blocks(const Fields& fields) {
  return std::make_unique<SelectBlocksCase>(fields);
}

}  // namespace quire::tools
