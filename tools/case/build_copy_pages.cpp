// SPDX-License-Identifier: Apache-2.0
#include "quire/ops/copy_pages.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "reference/copy_pages.h"
#include "tools/case/case.h"
#include "tools/case/op_parsers.h"

namespace quire::tools {
namespace {

// body(first byte, bytes) of every row of a page, [num_pages, kv, layers, page_size, heads, row].
template <typename Body> void for_rows(const TensorView& pages, std::int64_t page, Body&& body) {
  for (std::int64_t kv = 0; kv < pages.shape[1]; ++kv) {
    for (std::int64_t layer = 0; layer < pages.shape[2]; ++layer) {
      for (std::int64_t token = 0; token < pages.shape[3]; ++token) {
        for (std::int64_t head = 0; head < pages.shape[4]; ++head) {
          const std::int64_t element = pages.offset({page, kv, layer, token, head, 0});
          body(pages.as<std::byte>() + bytes_for(pages.dtype, element),
               bytes_for(pages.dtype, pages.shape[5]));
        }
      }
    }
  }
}

std::vector<std::byte> page_bytes(const TensorView& pages, std::int64_t page) {
  std::vector<std::byte> bytes;
  for_rows(pages, page, [&](const std::byte* row, std::int64_t count) {
    bytes.insert(bytes.end(), row, row + count);
  });
  return bytes;
}

// What a target page must hold afterwards.
struct ExpectedPage {
  std::string tensor;
  TensorView pages;
  std::int64_t page;
  std::vector<std::byte> bytes;
};

std::string find_fault(const std::vector<ExpectedPage>& expected) {
  for (const ExpectedPage& target : expected) {
    const std::vector<std::byte> actual = page_bytes(target.pages, target.page);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (actual[i] == target.bytes[i]) continue;
      return fmt::format("page {} of {} differs from its source at byte {}", target.page,
                         target.tensor, i);
    }
  }
  return "";
}

class CopyPagesCase final : public OpCase {
 public:
  explicit CopyPagesCase(const Fields& fields)
      : lengths_(read_lengths(fields)),
        cache_(read_cache(fields, lengths_, /*is_mla=*/false)),
        pairs_(fields.pairs("pairs")) {}

  // Pages are what the op is about: the same ones in every layout.
  Built build(Layout layout, std::uint64_t seed, std::int64_t max_bytes) const override {
    Built built(layout, max_bytes);
    CopyPagesArgs args;
    args.cache = build_cache(built.memory, cache_, lengths_, Contents::cached_and_new, seed);
    args.pairs =
        built.memory.allocate("pairs", DType::u32, {static_cast<std::int64_t>(pairs_.size()), 2});
    std::uint32_t* ids = args.pairs.as<std::uint32_t>();
    for (const auto& [source, target] : pairs_) {
      *ids++ = static_cast<std::uint32_t>(source);
      *ids++ = static_cast<std::uint32_t>(target);
    }
    expect_copies(built, args);
    bind(
        built, args, [](const auto& a, const Context& c) { copy_pages(a, c); },
        [](const CopyPagesArgs& a) { reference::copy_pages(a); });
    return built;
  }

  double flops() const override { return 0.0; }
  bool only_moves_data() const override { return true; }
  double bytes() const override {
    return 2.0 * static_cast<double>(pairs_.size()) * static_cast<double>(cache_.layers) *
           static_cast<double>(cache_.page_size) * static_cast<double>(cache_.token_bytes());
  }

 private:
  void expect_copies(Built& built, const CopyPagesArgs& args) const {
    if (built.memory.is_deferred(args.cache.blocks.data)) return;  // no byte will be compared
    std::vector<ExpectedPage> expected;
    const auto expect = [&](const char* name, const TensorView& pages) {
      const std::int64_t rows = pages.shape[1] * pages.shape[2] * pages.shape[3] * pages.shape[4];
      const std::int64_t row_bytes = bytes_for(pages.dtype, pages.shape[5]);
      built.memory.charge("expected pages", static_cast<std::int64_t>(pairs_.size()) * rows,
                          row_bytes + static_cast<std::int64_t>(sizeof(ByteRange)));
      for (const auto& [source, target] : pairs_) {
        if (source >= args.cache.num_pages() || target >= args.cache.num_pages()) continue;
        expected.push_back({name, pages, target, page_bytes(pages, source)});
        for_rows(pages, target, [&](const std::byte* row, std::int64_t count) {
          built.memory.allow_write(row, count);
        });
      }
    };
    expect("blocks", args.cache.blocks);
    if (args.cache.value_blocks) expect("value_blocks", *args.cache.value_blocks);
    if (args.cache.scales && args.cache.scales->strides[0] != 0) {
      expect("scales", *args.cache.scales);
    }
    built.verify = [expected] { return find_fault(expected); };
  }

  Lengths lengths_;
  CacheSpec cache_;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs_;
};

}  // namespace

std::unique_ptr<OpCase> parse_copy_pages(const Fields& fields) {
  return std::make_unique<CopyPagesCase>(fields);
}

}  // namespace quire::tools
