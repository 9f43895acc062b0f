// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/store.h"

#include "reference/store.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

// `store` and `store_scales` differ in what they write: whole rows, or the scales beside them.
enum class Stored : std::uint8_t { rows, scales };

class StoreCase final : public OpCase {
 public:
  StoreCase(const Fields& fields, Stored stored)
      : stored_(stored),
        lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/false)),
        side_(fields.choice("side", {"key", "value"}, "key") == "key" ? KvSide::key
                                                                      : KvSide::value),
        x_dtype_(fields.dtype(
            "x_dtype",
            {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8},
            DType::bf16)),
        amplitude_(fields.number("amplitude", 1.0)) {
    if (stored_ == Stored::scales && !cache_.row_format.uses_plane()) {
      fields.fail("'cache' must have a plane of scales");
    }
  }

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_) : cache_;
    const Contents contents = stored_ == Stored::rows ? Contents::cached : Contents::cached_and_new;
    const TensorView row_offsets = build_row_offsets(memory, lengths_);
    const PagedKVCache view = build_cache(memory, cache, lengths_, contents, seed);
    const std::int64_t tokens = lengths_.tokens();
    built.written_rows({.cache = view,
                        .layer = cache.layer,
                        .lengths = lengths_,
                        .key = side_ == KvSide::key,
                        .value = side_ == KvSide::value});
    if (stored_ == Stored::scales) {
      const StoreScalesArgs args{
          .scales =
              build_tensor(memory, seed, "scales", x_dtype_,
                           {tokens, cache.kv_heads, cache.row_format.plane_slots()}, 0.1, 1.0),
          .row_offsets = row_offsets,
          .cache = view,
          .layer = cache.layer,
          .side = side_};
      bind(
          built, args, [](const auto& a, const Context& c) { store_scales(a, c); },
          [](const StoreScalesArgs& a) { reference::store_scales(a); });
      return built;
    }
    const StoreArgs args{.x = build_tensor(memory, seed, "x", x_dtype_,
                                           {tokens, cache.kv_heads, cache.width()}, amplitude_),
                         .row_offsets = row_offsets,
                         .cache = view,
                         .layer = cache.layer,
                         .side = side_};
    bind(
        built, args, [](const auto& a, const Context& c) { store(a, c); },
        [](const StoreArgs& a) { reference::store(a); });
    return built;
  }

  double flops() const override { return 0.0; }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    const double tokens = static_cast<double>(lengths_.tokens() * cache_.kv_heads);
    if (stored_ == Stored::scales) {
      return tokens * static_cast<double>(cache_.row_format.plane_slots()) * 2.0 * bits(x_dtype_) /
             8.0;
    }
    return tokens * (static_cast<double>(cache_.width()) * bits(x_dtype_) / 8.0 +
                     static_cast<double>(cache_.row_bytes()));
  }

 private:
  Stored stored_;
  Lengths lengths_;
  CacheSpec cache_;
  KvSide side_;
  DType x_dtype_;
  double amplitude_;
};

}  // namespace

std::unique_ptr<OpCase> parse_store(const Fields& fields) {
  return std::make_unique<StoreCase>(fields, Stored::rows);
}

std::unique_ptr<OpCase> parse_store_scales(const Fields& fields) {
  return std::make_unique<StoreCase>(fields, Stored::scales);
}

}  // namespace quire::tools
