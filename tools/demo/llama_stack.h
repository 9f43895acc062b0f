// SPDX-License-Identifier: Apache-2.0
// Three attention layers of the Llama kind over grouped-query caches:
//   0  bf16 weights, key norm, rope, causal                          bf16 cache
//   1  int4 weights, value norm, rope, sliding window                bf16 cache
//   2  fp8 weights, no positions, the shared prefix attended apart   fp8 cache with scales
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/demo/page_pool.h"
#include "tools/demo/projection_weight.h"
#include "tools/demo/stack.h"

namespace quire::tools::demo {

struct LlamaSize {
  std::int64_t hidden = 128;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 32;
  std::int64_t window = 24;

  std::int64_t q_dim() const { return heads * head_dim; }
  std::int64_t qkv_dim() const { return (heads + 2 * kv_heads) * head_dim; }
};

class LlamaStack : public Stack {
 public:
  LlamaStack(TokenId vocabulary, std::int64_t num_pages, std::int64_t page_size, std::uint64_t seed,
             const LlamaSize& size = {});

  std::string name() const override { return "Llama-style"; }
  std::vector<std::string> describe() const override;
  std::vector<TokenId> run(const Batch& batch, Referee& referee) override;
  void poison(PageId page) override;
  void copy_pages(const Batch& batch, Referee& referee) const override;

 private:
  Matrix project_out(const Matrix& x, std::size_t layer, Referee& referee) const;
  Matrix run_full_layer(const Matrix& x, const Batch& batch, Referee& referee) const;
  Matrix run_window_layer(const Matrix& x, const Batch& batch, Referee& referee) const;
  Matrix run_prefix_layer(const Matrix& x, const Batch& batch, Referee& referee) const;
  // Q of the new tokens [tokens, heads, head_dim]; K and V go into the pages.
  Tensor project_qkv(const Matrix& x, const ProjectionWeight& weight, const Batch& batch,
                     const PagedKVCache& cache, std::int64_t layer, Referee& referee) const;
  Tensor attend_in_two_parts(const Tensor& q, const Batch& batch, Referee& referee) const;
  void require_one_pass(const Tensor& merged, const Tensor& q, const Batch& batch,
                        Referee& referee) const;

  LlamaSize size_;
  Vocabulary vocabulary_;
  PagePool wide_pool_;    // bf16, layers 0 and 1
  PagePool narrow_pool_;  // fp8 with scales, layer 2
  Tensor freqs_cis_;
  Tensor key_gamma_;
  Tensor value_gamma_;
  std::vector<ProjectionWeight> qkv_;  // [layers]
  std::vector<ProjectionWeight> out_;  // [layers] of [hidden, q_dim]
};

}  // namespace quire::tools::demo
