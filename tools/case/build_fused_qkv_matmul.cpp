// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/fused_qkv_matmul.h"

#include "reference/fused_qkv_matmul.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"
#include "tools/case/packed_projection.h"
#include "tools/case/projection_spec.h"

namespace quire::tools {
namespace {

class FusedQkvCase final : public OpCase {
 public:
  explicit FusedQkvCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/false)),
        q_dim_(fields.integer("q_dim", 0)),
        projection_(fields) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_) : cache_;
    const std::int64_t tokens = lengths_.tokens();
    FusedQkvArgs args;
    projection_.fill(memory, seed, tokens, num_columns(), args);
    args.row_offsets = build_row_offsets(memory, lengths_);
    args.cache = build_cache(memory, cache, lengths_, Contents::cached, seed);
    args.layer = cache.layer;
    args.out = built.output("out", projection_.out_dtype, {tokens, q_dim_});
    built.written_rows({.cache = args.cache,
                        .layer = args.layer,
                        .lengths = lengths_,
                        .key = true,
                        .value = !cache_.is_mla});
    bind(
        built, args, [](const auto& a, const Context& c) { fused_qkv_matmul(a, c); },
        [](const FusedQkvArgs& a, reference::Arithmetic m) { reference::fused_qkv_matmul(a, m); });
    if (projection_.is_packed) pack_before_running(built, args, fused_qkv_matmul);
    return built;
  }

  double flops() const override { return projection_.flops(lengths_.tokens(), num_columns()); }
  double bytes() const override {
    return projection_.weight.bytes(num_columns(), projection_.hidden);
  }
  Products products() const override { return projection_.products(); }
  double footprint() const override {
    return bytes() + static_cast<double>(lengths_.tokens() * (projection_.hidden + q_dim_)) * 4.0 +
           cache_.total_bytes(lengths_);
  }

 private:
  std::int64_t num_columns() const {  // N
    return q_dim_ + cache_.width() * cache_.kv_heads * (cache_.is_mla ? 1 : 2);
  }

  Lengths lengths_;
  CacheSpec cache_;
  std::int64_t q_dim_;
  ProjectionSpec projection_;
};

}  // namespace

std::unique_ptr<OpCase> parse_fused_qkv_matmul(const Fields& fields) {
  return std::make_unique<FusedQkvCase>(fields);
}

}  // namespace quire::tools
