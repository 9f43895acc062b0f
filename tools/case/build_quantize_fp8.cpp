// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/quantize_fp8.h"

#include <limits>

#include "quire/element.h"
#include "reference/quantize_fp8.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

class QuantizeFp8Case final : public OpCase {
 public:
  explicit QuantizeFp8Case(const Fields& fields)
      : rows_(fields.integer("rows", 0)),
        columns_(fields.integer("columns", 1)),
        group_size_(fields.integer("group_size", -1, -1)),
        x_dtype_(fields.dtype("x_dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16)),
        out_dtype_(fields.dtype("out_dtype", {DType::fp8_e4m3, DType::fp8_e5m2}, DType::fp8_e4m3)),
        scale_dtype_(fields.dtype("scale_dtype", {DType::f32, DType::e8m0}, DType::f32)),
        rounding_(fields.choice("scale_rounding", {"exact", "power_of_two"}, "exact")),
        upper_bound_(fields.number("scale_upper_bound", std::numeric_limits<double>::infinity())),
        amplitude_(fields.number("amplitude", 1.0)),
        zero_rows_(fields.integers("zero_rows", 0, rows_ - 1)) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    QuantizeFp8Args args;
    args.x = build_tensor(built.memory, seed, "x", x_dtype_, {rows_, columns_}, amplitude_);
    for (const std::int64_t row : zero_rows_) {
      if (built.memory.is_deferred(args.x.data)) break;  // a device fills it, and nobody compares
      for (std::int64_t column = 0; column < columns_; ++column) args.x.store({row, column}, 0.0);
    }
    args.group_size = group_size_;
    args.scale_upper_bound = upper_bound_;
    args.scale_rounding = rounding_ == "exact" ? ScaleRounding::exact : ScaleRounding::power_of_two;
    args.out = built.output("out", out_dtype_, {rows_, columns_});
    args.scale = built.output("scale", scale_dtype_, {rows_, num_groups()});
    bind(
        built, args, [](const auto& a, const Context& c) { quantize_fp8(a, c); },
        [](const QuantizeFp8Args& a) { reference::quantize_fp8(a); });
    return built;
  }

  double flops() const override { return 2.0 * static_cast<double>(rows_ * columns_); }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    return static_cast<double>(rows_ * columns_) * (bits(x_dtype_) / 8.0 + 1.0) +
           bits(scale_dtype_) / 8.0 * static_cast<double>(rows_ * num_groups());
  }

 private:
  std::int64_t num_groups() const {
    const std::int64_t group = group_size_ > 0 ? group_size_ : columns_;
    return (columns_ + group - 1) / group;
  }

  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t group_size_;
  DType x_dtype_;
  DType out_dtype_;
  DType scale_dtype_;
  std::string rounding_;
  double upper_bound_;
  double amplitude_;
  std::vector<std::int64_t> zero_rows_;
};

}  // namespace

std::unique_ptr<OpCase> parse_quantize_fp8(const Fields& fields) {
  return std::make_unique<QuantizeFp8Case>(fields);
}

}  // namespace quire::tools
