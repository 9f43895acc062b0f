// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/fused_qkv_matmul.h"

#include "reference/fused_qkv_matmul.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"
#include "tools/case/packed_projection.h"
#include "tools/case/weight_spec.h"

namespace quire::tools {
namespace {

class FusedQkvCase final : public OpCase {
 public:
  explicit FusedQkvCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/false)),
        hidden_(fields.integer("hidden", 1)),
        q_dim_(fields.integer("q_dim", 0)),
        x_dtype_(fields.dtype(
            "x_dtype", {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2},
            DType::bf16)),
        out_dtype_(fields.dtype("out_dtype", {DType::f32, DType::f16, DType::bf16},
                                is_fp8(x_dtype_) ? DType::bf16 : x_dtype_)),
        weight_(read_weight(fields)),
        bias_(fields.flag("bias", false)),
        input_scale_(fields.choice("input_scale", {"none", "tensor", "token", "block"},
                                   is_fp8(x_dtype_) ? "tensor" : "none")),
        is_packed_(fields.flag("packed", false)),
        activations_(fields.choice("activations", {"exact", "int8"}, "exact") == "int8"
                         ? Activations::int8
                         : Activations::exact),
        allow_fast_accum_(fields.flag("allow_fast_accum", false)),
        allow_tf32_(fields.flag("allow_tf32", false)),
        batch_invariant_(fields.flag("batch_invariant", false)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    Memory& memory = built.memory;
    const CacheSpec cache =
        layout == Layout::contiguous ? cache_.contiguous_twin(lengths_) : cache_;
    const std::int64_t tokens = lengths_.tokens();
    FusedQkvArgs args;
    const double amplitude = is_fp8(x_dtype_) ? 60.0 : 1.0;
    args.x = build_tensor(memory, seed, "x", x_dtype_, {tokens, hidden_}, amplitude);
    args.row_offsets = build_row_offsets(memory, lengths_);
    args.weight = build_weight(memory, weight_, num_columns(), hidden_, seed);
    args.cache = build_cache(memory, cache, lengths_, Contents::cached, seed);
    args.layer = cache.layer;
    if (bias_) args.bias = build_tensor(memory, seed, "bias", DType::f32, {num_columns()});
    if (input_scale_ != "none") {
      const std::int64_t rows = input_scale_ == "tensor" ? 1 : tokens;
      const std::int64_t columns = input_scale_ == "block" ? (hidden_ + 127) / 128 : 1;
      args.input_scale = build_tensor(memory, seed, "input_scale", DType::f32, {rows, columns},
                                      0.1 / amplitude, 1.0 / amplitude);
    }
    args.out = built.output("out", out_dtype_, {tokens, q_dim_});
    args.activations = activations_;
    args.allow_fast_accum = allow_fast_accum_;
    args.allow_tf32 = allow_tf32_;
    args.batch_invariant = batch_invariant_;
    built.written_rows({.cache = args.cache,
                        .layer = args.layer,
                        .lengths = lengths_,
                        .key = true,
                        .value = !cache_.is_mla});
    bind(
        built, args, [](const auto& a, const Context& c) { fused_qkv_matmul(a, c); },
        [](const FusedQkvArgs& a, reference::Arithmetic m) { reference::fused_qkv_matmul(a, m); });
    if (is_packed_) pack_before_running(built, args);
    return built;
  }

  double flops() const override {
    return 2.0 * static_cast<double>(lengths_.tokens()) * static_cast<double>(num_columns()) *
           static_cast<double>(hidden_);
  }
  double bytes() const override { return weight_.bytes(num_columns(), hidden_); }
  Products products() const override {
    const bool has_integers =
        weight_.format != WeightFormat::dense && weight_.format != WeightFormat::fp8;
    return has_integers ? Products::int8 : products_of(x_dtype_);
  }
  double footprint() const override {
    return bytes() + static_cast<double>(lengths_.tokens() * (hidden_ + q_dim_)) * 4.0 +
           cache_.total_bytes(lengths_);
  }

 private:
  std::int64_t num_columns() const {  // N
    return q_dim_ + cache_.width() * cache_.kv_heads * (cache_.is_mla ? 1 : 2);
  }

  Lengths lengths_;
  CacheSpec cache_;
  std::int64_t hidden_;
  std::int64_t q_dim_;
  DType x_dtype_;
  DType out_dtype_;
  WeightSpec weight_;
  bool bias_;
  std::string input_scale_;
  bool is_packed_;
  Activations activations_;
  bool allow_fast_accum_;
  bool allow_tf32_;
  bool batch_invariant_;
};

}  // namespace

std::unique_ptr<OpCase> parse_fused_qkv_matmul(const Fields& fields) {
  return std::make_unique<FusedQkvCase>(fields);
}

}  // namespace quire::tools
