// SPDX-License-Identifier: Apache-2.0
// What is decided before a launch: a pure function of the problem and the number of multiprocessors.
#pragma once

#include <string>
#include <string_view>

#include "cuda/common/paging/decoded_pages.h"
#include "cuda/sm90/sparse_mla/config.h"
#include "cuda/sm90/sparse_mla/params.h"
#include "quire/ops/sparse_mla.h"

namespace quire::cuda::sm90::sparse_mla {

// The compiled kernels as the planner sees them. For host code only: a kernel's own file would compile
// all of them.

struct SparseVariant {
  std::string_view name;
  RowKind rows;
  RowShape shape;
  int heads;   // of a token that a cluster takes; all clusters of a wider token, this many each
  int blocks;  // of a cluster
  int keys;    // of a tile
  void (*launch)(const SparseParams& params, int blocks, cudaStream_t stream);
};

template <typename Variant> constexpr SparseVariant sparse_variant(std::string_view name) {
  return {name,
          Variant::kConfig.rows,
          Variant::kConfig.shape,
          SparseConfig::kHeads * Variant::kConfig.blocks,
          Variant::kConfig.blocks,
          Variant::kConfig.keys,
          launch_sparse_tiles<Variant>};
}
template <typename Variant> constexpr SparseVariant fp8_variant(std::string_view name) {
  return {name, RowKind::fp8,     RowShape::latent_rope,     Variant::kConfig.heads,
          1,    Fp8Config::kKeys, launch_sparse_fp8<Variant>};
}

// Of each kind and shape of rows, from the narrowest on; one of each takes 64 heads.
inline constexpr SparseVariant kSparseVariants[] = {
    sparse_variant<SparseBf16>("bf16"),
    fp8_variant<SparseFp8Heads16>("fp8_heads16"),
    fp8_variant<SparseFp8Heads32>("fp8_heads32"),
    sparse_variant<SparseFp8>("fp8"),
    sparse_variant<SparseFp8Pair>("fp8_pair"),
    sparse_variant<SparseWholeBf16>("whole_bf16"),
    sparse_variant<SparseWholeFp8>("whole_fp8"),
    sparse_variant<SparseWholeFp8Pair>("whole_fp8_pair"),
};

struct SparsePlan {
  const SparseVariant* variant = nullptr;
  SparseWork work{};
  int blocks = 0;
  DecodedShape decoded
      [2]{};  // of each stream: rows that become bf16 before the kernel reads them; none: no pages

  bool decodes() const { return decoded[0].pages() > 0; }
  std::int64_t decoded_pages() const { return decoded[0].pages() + decoded[1].pages(); }
};

// Empty, or why no compiled kernel takes the problem.
std::string refuse_sparse_problem(const SparseMlaProblem& problem);

SparsePlan plan_sparse(const SparseMlaProblem& problem, int num_sms);

}  // namespace quire::cuda::sm90::sparse_mla
