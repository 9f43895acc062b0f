// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/row_offsets.h"

#include <fmt/format.h>

#include "reference/row_offsets.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

class RowOffsetsCase final : public OpCase {
 public:
  explicit RowOffsetsCase(const Fields& fields) : lengths_(read_lengths(fields)) {}

  Built build(Layout layout, std::uint64_t, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    RowOffsetsArgs args;
    args.row_offsets = build_row_offsets(built.memory, lengths_);
    args.cache_lengths = built.memory.allocate("cache_lengths", DType::u32, {lengths_.batch()});
    for (std::int64_t b = 0; b < lengths_.batch(); ++b) {
      args.cache_lengths.as<std::uint32_t>()[b] =
          static_cast<std::uint32_t>(lengths_.cached[static_cast<std::size_t>(b)]);
    }
    args.out = built.output("out", DType::u32, {lengths_.batch() + 1});
    built.verify = [out = args.out, lengths = lengths_]() -> std::string {
      std::int64_t sum = 0;
      for (std::int64_t b = 0; b <= lengths.batch(); ++b) {
        const std::int64_t actual = out.as<std::uint32_t>()[b];
        if (actual != sum)
          return fmt::format("out[{}] is {}, the sum of keys is {}", b, actual, sum);
        if (b < lengths.batch()) sum += lengths.keys(b);
      }
      return "";
    };
    bind(
        built, args, [](const auto& a, const Context& c) { row_offsets(a, c); },
        [](const RowOffsetsArgs& a) { reference::row_offsets(a); });
    return built;
  }

  double flops() const override { return static_cast<double>(lengths_.batch()); }
  bool only_moves_data() const override { return true; }
  double bytes() const override { return 4.0 * static_cast<double>(3 * lengths_.batch() + 2); }

 private:
  Lengths lengths_;
};

}  // namespace

std::unique_ptr<OpCase> parse_row_offsets(const Fields& fields) {
  return std::make_unique<RowOffsetsCase>(fields);
}

}  // namespace quire::tools
