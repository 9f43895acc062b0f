// SPDX-License-Identifier: Apache-2.0
// The layer that makes V3.2 sparse: index keys in an fp8 cache of their own, an indexer that picks
// top_k positions for each token, and absorbed attention over those rows alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/demo/index_layer.h"
#include "tools/demo/page_pool.h"
#include "tools/demo/stack.h"

namespace quire::tools::demo {

class SparseLayer {
 public:
  SparseLayer(const LatentSize& size, std::int64_t num_pages, std::int64_t page_size,
              std::uint64_t seed);

  // x [tokens, hidden], normalised; the layer's contribution to the hidden state.
  Matrix run(const Matrix& x, const Batch& batch, Referee& referee);
  void poison(PageId page);
  void copy_pages(const Batch& batch, Referee& referee) const;
  const RowFormat& row_format() const { return latent_pool_.options().row_format; }
  // Rows read by sparse attention, and rows that dense attention would have read.
  std::int64_t num_selected() const { return num_selected_; }
  std::int64_t num_visible() const { return num_visible_; }

 private:
  void store_latents(const Matrix& x, const Batch& batch, Referee& referee) const;
  Tensor absorb_queries(const Matrix& q_low, const Batch& batch, Referee& referee) const;
  void check_physical_rows(const Tensor& indices, const Batch& batch, Referee& referee) const;
  Matrix raise_values(const Matrix& latents) const;
  void count_keys(const Tensor& indices, const Batch& batch);
  // Rotates x [tokens, heads, width] in place.
  void rotate(const Tensor& x, const PagedKVCache& cache, const Batch& batch,
              Referee& referee) const;
  PagedKVCache latent_cache(const Batch& batch) const;

  LatentSize size_;
  PagePool latent_pool_;  // fp8 blocks with scales in the row
  Tensor freqs_cis_;
  Matrix q_down_;   // [q_rank, hidden]
  Matrix kv_down_;  // [row, hidden]
  Matrix q_up_;     // [heads · (nope + rope), q_rank]
  Matrix kv_up_;    // [heads · (nope + value), latent]
  Matrix out_;      // [hidden, heads · value]
  IndexLayer index_;
  std::int64_t num_selected_ = 0;
  std::int64_t num_visible_ = 0;
};

}  // namespace quire::tools::demo
