// SPDX-License-Identifier: Apache-2.0
// Two layers of the DeepSeek-V3.2 kind over latent caches:
//   0  dense latent attention; prompts through mla_prefill, short steps through mla_decode; bf16
//   rows 1  an indexer chooses top_k keys per token, sparse attention reads only those; rows of fp8
//      blocks with their scales inside
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/demo/page_pool.h"
#include "tools/demo/projection_weight.h"
#include "tools/demo/sparse_layer.h"
#include "tools/demo/stack.h"

namespace quire::tools::demo {

class DeepseekStack : public Stack {
 public:
  DeepseekStack(TokenId vocabulary, std::int64_t num_pages, std::int64_t page_size,
                std::uint64_t seed, const LatentSize& size = {});

  std::string name() const override { return "DeepSeek-V3.2-style"; }
  std::vector<std::string> describe() const override;
  std::vector<TokenId> run(const Batch& batch, Referee& referee) override;
  void poison(PageId page) override;
  void copy_pages(const Batch& batch, Referee& referee) const override;
  std::vector<std::string> notes() const override;

 private:
  Matrix run_dense_layer(const Matrix& x, const Batch& batch, Referee& referee) const;
  void prefill(const Tensor& q, const Tensor& out, const PagedKVCache& cache, const Batch& batch,
               Referee& referee) const;
  void decode(const Tensor& q, const Tensor& out, const PagedKVCache& cache, const Batch& batch,
              Referee& referee) const;

  LatentSize size_;
  Vocabulary vocabulary_;
  PagePool pool_;  // bf16 rows of layer 0
  Tensor freqs_cis_;
  Tensor kv_norm_gamma_;  // [latent]
  ProjectionWeight qkv_;  // [q_rank + row, hidden]
  Matrix q_up_;           // [heads · (nope + rope), q_rank]
  Tensor kv_b_proj_;      // [heads · (nope + value), latent]
  Matrix out_;            // [hidden, heads · value]
  SparseLayer sparse_layer_;
};

}  // namespace quire::tools::demo
