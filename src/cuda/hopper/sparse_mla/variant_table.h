// SPDX-License-Identifier: Apache-2.0
// The compiled kernels as the planner sees them. For host code only: a kernel's own file would compile
// all of them.
#pragma once

#include <string_view>

#include "cuda/hopper/sparse_mla/launch_tiles.h"
#include "cuda/hopper/sparse_mla/variants.h"

namespace quire::cuda::hopper {

struct SparseVariant {
  std::string_view name;
  SparseConfig config;
  void (*launch)(const SparseParams& params, int blocks, cudaStream_t stream);
};

template <typename Variant> constexpr SparseVariant sparse_variant(std::string_view name) {
  return {name, Variant::kConfig, launch_sparse_tiles<Variant>};
}

inline constexpr SparseVariant kSparseVariants[] = {
    sparse_variant<SparseBf16>("bf16"),
    sparse_variant<SparseFp8>("fp8"),
};

}  // namespace quire::cuda::hopper
