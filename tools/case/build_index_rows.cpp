// SPDX-License-Identifier: Apache-2.0
// store_index_keys and quantize_index_queries: raw rows, and the fp8 rows that mla_indexer reads.
#include <algorithm>

#include "reference/index_rows.h"
#include "tools/case/case.h"
#include "tools/case/latent_spec.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

// The keys that both ops have.
struct IndexRowSpec {
  explicit IndexRowSpec(const Fields& fields)
      : lengths(read_lengths(fields)),
        cache(read_cache(fields, lengths, /*is_mla=*/true)),
        rope_dim(fields.integer("rope_dim", 0, 0)),
        dtype(fields.dtype("x_dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        freqs_dtype(fields.dtype("freqs_dtype", {DType::f32, DType::f16, DType::bf16}, DType::f32)),
        interleaved(fields.flag("interleaved", false)),
        hadamard(fields.flag("hadamard", false)),
        rounding(fields.choice("scale_rounding", {"exact", "power_of_two"}, "power_of_two") ==
                         "exact"
                     ? ScaleRounding::exact
                     : ScaleRounding::power_of_two),
        amplitude(fields.number("amplitude", 1.0)),
        mean(fields.number("mean", 0.0)) {}

  // The arguments of the same names.
  template <typename Args>
  void fill(Memory& memory, std::uint64_t seed, const CacheSpec& spec, Contents contents,
            Args& args) const {
    args.row_offsets = build_row_offsets(memory, lengths);
    args.cache = build_cache(memory, spec, lengths, contents, seed);
    if (rope_dim > 0) {
      const std::int64_t positions = std::max<std::int64_t>(1, lengths.max_keys());
      args.freqs_cis = build_freqs(memory, freqs_dtype, positions, rope_dim);
    }
    args.interleaved = interleaved;
    args.hadamard = hadamard;
    args.scale_rounding = rounding;
  }

  CacheSpec cache_for(Layout layout) const {
    return layout == Layout::contiguous ? cache.contiguous_twin(lengths) : cache;
  }
  std::int64_t columns() const { return cache.width(); }
  // Additions and products of one row, without a norm.
  double row_flops() const {
    double steps = 2.0;  // amax and quotient
    for (std::int64_t level = 1; hadamard && level < columns(); level *= 2) steps += 1.0;
    return steps * static_cast<double>(columns()) + 3.0 * static_cast<double>(rope_dim);
  }
  double raw_bytes() const { return static_cast<double>(columns()) * bits(dtype) / 8.0; }

  Lengths lengths;
  CacheSpec cache;
  std::int64_t rope_dim;  // 0: no rope
  DType dtype;
  DType freqs_dtype;
  bool interleaved;
  bool hadamard;
  ScaleRounding rounding;
  double amplitude;
  double mean;
};

class StoreIndexKeysCase final : public OpCase {
 public:
  explicit StoreIndexKeysCase(const Fields& fields)
      : spec_(fields),
        norm_(fields.flag("norm", true)),
        norm_dtype_(fields.dtype("norm_dtype", {DType::f32, DType::f16, DType::bf16}, DType::f32)),
        epsilon_(fields.number("epsilon", 1e-6)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache = spec_.cache_for(layout);
    StoreIndexKeysArgs args;
    args.x = build_tensor(memory, seed, "x", spec_.dtype, {spec_.lengths.tokens(), spec_.columns()},
                          spec_.amplitude, spec_.mean);
    spec_.fill(memory, seed, cache, Contents::cached, args);
    args.layer = cache.layer;
    if (norm_) {
      args.norm_weight =
          build_tensor(memory, seed, "norm_weight", norm_dtype_, {spec_.columns()}, 0.1, 1.0);
      args.norm_bias = build_tensor(memory, seed, "norm_bias", norm_dtype_, {spec_.columns()}, 0.1);
      args.epsilon = epsilon_;
    }
    built.written_rows({.cache = args.cache, .layer = args.layer, .lengths = spec_.lengths});
    built.verify = [args] { return reference::store_index_keys_fault(args); };
    bind(
        built, args, [](const auto& a, const Context& c) { store_index_keys(a, c); },
        [](const StoreIndexKeysArgs& a) { reference::store_index_keys(a); });
    return built;
  }

  double flops() const override {
    const double norm = norm_ ? 7.0 * static_cast<double>(spec_.columns()) : 0.0;
    return static_cast<double>(spec_.lengths.tokens()) * (spec_.row_flops() + norm);
  }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    return static_cast<double>(spec_.lengths.tokens()) *
           (spec_.raw_bytes() + static_cast<double>(spec_.cache.token_bytes()));
  }

 private:
  IndexRowSpec spec_;
  bool norm_;
  DType norm_dtype_;
  double epsilon_;
};

class QuantizeIndexQueriesCase final : public OpCase {
 public:
  explicit QuantizeIndexQueriesCase(const Fields& fields)
      : spec_(fields),
        heads_(fields.integer("heads", 1)),
        weights_(fields.flag("weights", true)),
        weights_dtype_(
            fields.dtype("weights_dtype", {DType::f32, DType::f16, DType::bf16}, DType::f32)),
        factor_(fields.number("factor", 1.0)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const std::int64_t tokens = spec_.lengths.tokens();
    QuantizeIndexQueriesArgs args;
    args.q = build_tensor(memory, seed, "q", spec_.dtype, {tokens, heads_, spec_.columns()},
                          spec_.amplitude, spec_.mean);
    spec_.fill(memory, seed, spec_.cache_for(layout), Contents::cached, args);
    if (weights_) {
      args.weights = build_tensor(memory, seed, "weights", weights_dtype_, {tokens, heads_});
    }
    args.factor = factor_;
    args.out = built.output("out", DType::fp8_e4m3, {tokens, heads_, spec_.columns()});
    args.q_scale = built.output("q_scale", DType::f32, {tokens, heads_});
    built.verify = [args] { return reference::quantize_index_queries_fault(args); };
    bind(
        built, args, [](const auto& a, const Context& c) { quantize_index_queries(a, c); },
        [](const QuantizeIndexQueriesArgs& a, reference::Arithmetic arithmetic) {
          reference::quantize_index_queries(a, arithmetic);
        });
    return built;
  }

  double flops() const override {
    return static_cast<double>(spec_.lengths.tokens() * heads_) * spec_.row_flops();
  }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    const double weight = weights_ ? bits(weights_dtype_) / 8.0 : 0.0;
    return static_cast<double>(spec_.lengths.tokens() * heads_) *
           (spec_.raw_bytes() + static_cast<double>(spec_.columns()) + 4.0 + weight);
  }

 private:
  IndexRowSpec spec_;
  std::int64_t heads_;
  bool weights_;
  DType weights_dtype_;
  double factor_;
};

}  // namespace

std::unique_ptr<OpCase> parse_store_index_keys(const Fields& fields) {
  return std::make_unique<StoreIndexKeysCase>(fields);
}

std::unique_ptr<OpCase> parse_quantize_index_queries(const Fields& fields) {
  return std::make_unique<QuantizeIndexQueriesCase>(fields);
}

}  // namespace quire::tools
