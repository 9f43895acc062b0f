// SPDX-License-Identifier: Apache-2.0
#include "reference/copy_pages.h"

#include <cstring>

namespace quire::reference {
namespace {

// pages: [num_pages, kv, layers, page_size, heads, row]
void copy_page(const TensorView& pages, std::int64_t source, std::int64_t target) {
  const auto bytes = static_cast<std::size_t>(bytes_for(pages.dtype, 1));
  for (std::int64_t kv = 0; kv < pages.shape[1]; ++kv) {
    for (std::int64_t layer = 0; layer < pages.shape[2]; ++layer) {
      for (std::int64_t token = 0; token < pages.shape[3]; ++token) {
        for (std::int64_t head = 0; head < pages.shape[4]; ++head) {
          for (std::int64_t column = 0; column < pages.shape[5]; ++column) {
            const auto at = [&](std::int64_t page) {
              const std::int64_t element = pages.offset({page, kv, layer, token, head, column});
              return pages.as<std::byte>() + bytes_for(pages.dtype, element);
            };
            if (at(target) != at(source)) std::memcpy(at(target), at(source), bytes);
          }
        }
      }
    }
  }
}

}  // namespace

void copy_pages(const CopyPagesArgs& args) {
  for (std::int64_t pair = 0; pair < args.pairs.shape[0]; ++pair) {
    const auto page = [&](std::int64_t side) -> std::int64_t {
      return args.pairs.as<const std::uint32_t>()[args.pairs.offset({pair, side})];
    };
    if (page(0) >= args.cache.num_pages() || page(1) >= args.cache.num_pages()) continue;
    copy_page(args.cache.blocks, page(0), page(1));
    if (args.cache.value_blocks) copy_page(*args.cache.value_blocks, page(0), page(1));
    if (args.cache.scales) copy_page(*args.cache.scales, page(0), page(1));
  }
}

}  // namespace quire::reference
