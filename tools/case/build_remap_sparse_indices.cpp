// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/remap_sparse_indices.h"

#include <fmt/format.h>

#include "reference/remap_sparse_indices.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"
#include "tools/case/sparse_indices.h"

namespace quire::tools {
namespace {

// What a slot must become, from the table and the rule in the op's header.
std::int64_t expected_row(const PagedKVCache& cache, std::int64_t sequence, std::int64_t position) {
  if (position < 0) return position;
  const std::int64_t page = cache.pages().page_at(sequence, position / cache.page_size());
  if (page < 0) return -1;
  return page * cache.page_size() + position % cache.page_size();
}

std::string find_fault(const RemapSparseIndicesArgs& args, const std::vector<std::int32_t>& before,
                       const Lengths& lengths) {
  const std::int64_t top_k = args.out.shape[1];
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < lengths.batch(); ++b) {
    for (std::int64_t i = 0; i < lengths.added[static_cast<std::size_t>(b)]; ++i, ++token) {
      for (std::int64_t slot = 0; slot < top_k; ++slot) {
        const std::int64_t at = token * top_k + slot;
        const std::int64_t position = before[static_cast<std::size_t>(at)];
        const std::int64_t expected = expected_row(args.cache, b, position);
        const std::int64_t actual = args.out.as<std::int32_t>()[at];
        if (actual == expected) continue;
        return fmt::format("token {}, slot {}: position {} is row {}, got {}", token, slot,
                           position, expected, actual);
      }
    }
  }
  return "";
}

class RemapCase final : public OpCase {
 public:
  explicit RemapCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/true)),
        top_k_(fields.integer("top_k", 1)),
        kind_(fields.choice("indices", {"chosen", "hostile", "none"}, "hostile")),
        in_place_(fields.flag("in_place", false)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_) : cache_;
    RemapSparseIndicesArgs args;
    args.indices =
        build_sparse_indices(built.memory, "indices", kind_, top_k_, false, lengths_, seed).indices;
    args.row_offsets = build_row_offsets(built.memory, lengths_);
    args.cache = build_cache(built.memory, cache, lengths_, Contents::cached, seed);
    args.out = args.indices;
    if (in_place_) built.in_place("out", args.indices);
    if (!in_place_) args.out = built.output("out", DType::i32, {lengths_.tokens(), top_k_});
    const auto* first = args.indices.as<const std::int32_t>();
    const std::vector<std::int32_t> before(first, first + args.indices.numel());
    built.outputs_depend_on_layout = true;
    built.verify = [args, before, lengths = lengths_] { return find_fault(args, before, lengths); };
    bind(
        built, args, [](const auto& a, const Context& c) { remap_sparse_indices(a, c); },
        [](const RemapSparseIndicesArgs& a) { reference::remap_sparse_indices(a); });
    return built;
  }

  double flops() const override { return 0.0; }
  bool only_moves_data() const override { return true; }
  double bytes() const override { return 8.0 * static_cast<double>(lengths_.tokens() * top_k_); }

 private:
  Lengths lengths_;
  CacheSpec cache_;
  std::int64_t top_k_;
  std::string kind_;
  bool in_place_;
};

}  // namespace

std::unique_ptr<OpCase> parse_remap_sparse_indices(const Fields& fields) {
  return std::make_unique<RemapCase>(fields);
}

}  // namespace quire::tools
