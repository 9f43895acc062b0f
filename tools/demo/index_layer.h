// SPDX-License-Identifier: Apache-2.0
// The indexer of a sparse layer: keys in an fp8 cache of their own, and for each token the top_k
// positions that its queries score highest.
#pragma once

#include <cstdint>

#include "tools/demo/page_pool.h"
#include "tools/demo/stack.h"

namespace quire::tools::demo {

struct LatentSize {
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t q_rank = 48;
  std::int64_t latent = 64;
  std::int64_t nope = 32;
  std::int64_t rope = 16;
  std::int64_t value = 32;
  std::int64_t index_heads = 4;
  std::int64_t index_dim = 32;
  std::int64_t top_k = 16;
  std::int64_t scale_block = 32;  // columns of a latent row that share a scale

  std::int64_t row() const { return latent + rope; }
  std::int64_t q_head() const { return nope + rope; }
  std::int64_t kv_head() const { return nope + value; }
};

class IndexLayer {
 public:
  IndexLayer(const LatentSize& size, std::int64_t num_pages, std::int64_t page_size,
             std::uint64_t seed);

  // x [tokens, hidden], normalised.
  void store_keys(const Matrix& x, const Batch& batch, Referee& referee) const;
  // Positions i32 [tokens, top_k]; q_low [tokens, q_rank].
  Tensor select_keys(const Matrix& x, const Matrix& q_low, const Batch& batch,
                     Referee& referee) const;
  void poison(PageId page) { pool_.poison(page); }
  void copy_pages(const Batch& batch, Referee& referee) const {
    copy_pages_in(pool_, batch, referee);
  }

 private:
  void store_composed_keys(const Matrix& keys, const Batch& batch, Referee& referee) const;
  void compare_keys(const Batch& batch, Referee& referee) const;
  PagedKVCache cache(const Batch& batch) const;

  LatentSize size_;
  PagePool pool_;  // fp8 keys, one f32 scale per token
  Tensor freqs_cis_;
  Tensor norm_weight_;  // [index_dim]
  Tensor norm_bias_;
  Matrix queries_;  // [index_heads · index_dim, q_rank]
  Matrix keys_;     // [index_dim, hidden]
  Matrix weights_;  // [index_heads, hidden]
};

}  // namespace quire::tools::demo
