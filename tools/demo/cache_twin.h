// SPDX-License-Identifier: Apache-2.0
// A contiguous copy of one layer of a paged cache, for the oracle: sequence after sequence, in
// order, without page reuse, shared pages or garbage. What lies past a sequence's end is zero here
// and poison there, so that a result which depends on it cannot agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/paged_kv_cache.h"
#include "tools/demo/agreement.h"
#include "tools/demo/tensor.h"

namespace quire::tools::demo {

enum class TwinPages : std::uint8_t {
  one_per_sequence,
  same_size,  // for ops whose result depends on the page size, and for tables with holes
};

class CacheTwin {
 public:
  // Copies the rows [0, cache_length + new tokens) of every sequence. Tables with holes get pages
  // of the same size whatever `pages` says.
  CacheTwin(const PagedKVCache& cache, std::int64_t layer, const TensorView& row_offsets,
            TwinPages pages = TwinPages::one_per_sequence);

  PagedKVCache view() const;  // one layer: number 0

  // After the op ran on the cache and the oracle on this twin: the new rows are the same, bit for
  // bit, and no other byte of the pool has changed, in any page or layer.
  Fault compare_bits() const;
  // The same with new rows that are only close; `naive` is a twin that the naive oracle ran on.
  Fault compare_tolerance(const CacheTwin* naive) const;

 private:
  bool has_holes() const;
  void lay_out(TwinPages pages);
  void copy_rows();
  Fault compare_pool() const;
  std::vector<KvLayerView> sides(const PagedKVCache& cache, std::int64_t layer) const;

  PagedKVCache cache_;
  std::int64_t layer_;
  std::vector<std::int64_t> num_cached_;  // [batch]
  std::vector<std::int64_t> num_keys_;    // [batch]
  std::vector<std::byte> blocks_before_;
  std::vector<std::byte> scales_before_;
  Tensor blocks_;
  Tensor scales_;
  Tensor page_table_;
  Tensor cache_lengths_;
};

}  // namespace quire::tools::demo
