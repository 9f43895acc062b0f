// SPDX-License-Identifier: Apache-2.0
// The compiled indexer kernels as the planner sees them. For host code only: a kernel's own file would
// compile all of them.
#pragma once

#include <string_view>

#include "cuda/hopper/mla_indexer/launch_index.h"
#include "cuda/hopper/mla_indexer/variants.h"

namespace quire::cuda::hopper {

struct IndexVariant {
  std::string_view name;
  IndexConfig config;
  void (*launch)(const IndexParams& params, cudaStream_t stream);
};

template <typename Variant> constexpr IndexVariant index_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_index<Variant>};
}

// Of the same heads and dims: fewer tokens first. Four heads are half of the fewest columns of a product,
// so that two tokens share one.
inline constexpr IndexVariant kIndexVariants[] = {
    index_variant<IndexOne<64, 128>>("h64_d128_t1"),
    index_variant<IndexTwo<64, 128>>("h64_d128_t2"),
    index_variant<IndexOne<32, 128>>("h32_d128_t1"),
    index_variant<IndexTwo<32, 128>>("h32_d128_t2"),
    index_variant<IndexOne<16, 128>>("h16_d128_t1"),
    index_variant<IndexTwo<16, 128>>("h16_d128_t2"),
    index_variant<IndexOne<8, 128>>("h8_d128_t1"),
    index_variant<IndexTwo<8, 128>>("h8_d128_t2"),
    index_variant<IndexTwo<4, 128>>("h4_d128_t2"),
    index_variant<IndexOne<64, 64>>("h64_d64_t1"),
    index_variant<IndexTwo<64, 64>>("h64_d64_t2"),
    index_variant<IndexOne<32, 64>>("h32_d64_t1"),
    index_variant<IndexTwo<32, 64>>("h32_d64_t2"),
    index_variant<IndexOne<16, 64>>("h16_d64_t1"),
    index_variant<IndexTwo<16, 64>>("h16_d64_t2"),
    index_variant<IndexOne<8, 64>>("h8_d64_t1"),
    index_variant<IndexTwo<8, 64>>("h8_d64_t2"),
    index_variant<IndexTwo<4, 64>>("h4_d64_t2"),
};

}  // namespace quire::cuda::hopper
