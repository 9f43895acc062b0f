// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/linear.h"

#include "reference/linear.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"
#include "tools/case/packed_projection.h"
#include "tools/case/projection_spec.h"

namespace quire::tools {
namespace {

class LinearCase final : public OpCase {
 public:
  explicit LinearCase(const Fields& fields)
      : tokens_(fields.integer("tokens", 0)),
        columns_(fields.integer("columns", 0)),
        projection_(fields) {}

  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    LinearArgs args;
    projection_.fill(built.memory, seed, tokens_, columns_, args);
    args.out = built.output("out", projection_.out_dtype, {tokens_, columns_});
    bind(
        built, args, [](const auto& a, const Context& c) { linear(a, c); },
        [](const LinearArgs& a, reference::Arithmetic m) { reference::linear(a, m); });
    if (projection_.is_packed) pack_before_running(built, args, linear);
    return built;
  }

  double flops() const override { return projection_.flops(tokens_, columns_); }
  double bytes() const override { return projection_.weight.bytes(columns_, projection_.hidden); }
  Products products() const override { return projection_.products(); }
  double footprint() const override {
    return bytes() + static_cast<double>(tokens_ * (projection_.hidden + columns_)) * 4.0;
  }

 private:
  std::int64_t tokens_;
  std::int64_t columns_;  // N
  ProjectionSpec projection_;
};

}  // namespace

std::unique_ptr<OpCase> parse_linear(const Fields& fields) {
  return std::make_unique<LinearCase>(fields);
}

}  // namespace quire::tools
