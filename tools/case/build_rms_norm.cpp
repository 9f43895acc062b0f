// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/rms_norm.h"

#include "reference/rms_norm.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

class RmsNormCase final : public OpCase {
 public:
  RmsNormCase(const Fields& fields, KvSide side)
      : side_(side),
        lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/false)),
        per_head_(fields.flag("per_head", true)),
        columns_(per_head_ ? fields.integer("columns", 1, cache_.width())
                           : cache_.kv_heads * cache_.width()),
        gamma_dtype_(
            fields.dtype("gamma_dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        epsilon_(fields.number("epsilon", 1e-6)),
        weight_offset_(fields.number("weight_offset", 0.0)),
        multiply_before_cast_(fields.flag("multiply_before_cast", true)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_) : cache_;
    RmsNormArgs args;
    args.cache = build_cache(built.memory, cache, lengths_, Contents::cached_and_new, seed);
    args.layer = cache.layer;
    args.side = side_;
    args.row_offsets = build_row_offsets(built.memory, lengths_);
    args.gamma = build_tensor(built.memory, seed, "gamma", gamma_dtype_, {columns_}, 0.1,
                              1.0 - weight_offset_);
    args.epsilon = epsilon_;
    args.weight_offset = weight_offset_;
    args.per_head = per_head_;
    args.multiply_before_cast = multiply_before_cast_;
    built.written_rows({.cache = args.cache,
                        .layer = args.layer,
                        .lengths = lengths_,
                        .key = side_ == KvSide::key,
                        .value = side_ == KvSide::value});
    bind(
        built, args,
        [](const RmsNormArgs& a, const Context& c) {
          if (a.side == KvSide::key) rms_norm_key(a, c);
          if (a.side == KvSide::value) rms_norm_value(a, c);
        },
        [](const RmsNormArgs& a, reference::Arithmetic m) { reference::rms_norm(a, m); });
    return built;
  }

  double flops() const override {
    const std::int64_t rows = per_head_ ? lengths_.tokens() * cache_.kv_heads : lengths_.tokens();
    return 4.0 * static_cast<double>(rows) * static_cast<double>(columns_);
  }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    return 2.0 * static_cast<double>(lengths_.tokens()) *
           static_cast<double>(cache_.kv_heads * cache_.row_bytes());
  }

 private:
  KvSide side_;
  Lengths lengths_;
  CacheSpec cache_;
  bool per_head_;
  std::int64_t columns_;
  DType gamma_dtype_;
  double epsilon_;
  double weight_offset_;
  bool multiply_before_cast_;
};

}  // namespace

std::unique_ptr<OpCase> parse_rms_norm_key(const Fields& fields) {
  return std::make_unique<RmsNormCase>(fields, KvSide::key);
}

std::unique_ptr<OpCase> parse_rms_norm_value(const Fields& fields) {
  return std::make_unique<RmsNormCase>(fields, KvSide::value);
}

}  // namespace quire::tools
