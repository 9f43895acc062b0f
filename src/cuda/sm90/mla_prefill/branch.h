// SPDX-License-Identifier: Apache-2.0
// One call of mla_prefill: its scratch, and the kernels that it starts.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/sm90/mla_prefill/params.h"
#include "cuda/sm90/mla_prefill/plan_branch.h"
#include "cuda/sm90/mla_prefill/project.h"

namespace quire::cuda::sm90::mla_prefill {

struct BranchScratch {
  ChunkSpans spans;
  float* new_rows;       // [tokens, latent + rope]
  std::byte* latents;    // [rows, latent], of q's dtype or e4m3
  float* latent_scales;  // [rows, scale columns], e4m3 only
  std::byte* rope_rows;  // [rows, rope], of q's dtype or e4m3
  std::byte* projected;  // [rows, group, K | V], of q's dtype or e4m3; in either order
  float* chain_sums;     // [tokens, group, value], more than one chunk only
  float* chain_rows;     // [tokens, group, 2]
  std::byte* codes;      // [group, rows, K | V], e4m3, where the projection does not write it
};

BranchScratch carve_branch(Carver& carver, const BranchShape& shape);

class Branch {
 public:
  Branch(const MlaPrefillArgs& args, const BranchShape& shape, const VisibleRange& visible,
         const Context& context);
  void run() const;

 private:
  struct Heads {
    std::int64_t first;
    std::int64_t count;
  };

  QueryRotation rotation() const;
  QueryRotation share_rotation(ProjectionParams& first) const;
  void rotate_queries() const;
  SpanParams spans() const;
  bool gathers_plain() const;
  bool finishes_rows() const;
  void gather(std::int64_t chunk, const Heads& heads, const QueryRotation& rotation) const;
  ProjectionParams projection(std::int64_t chunk, const Heads& heads) const;
  bool projects_codes() const { return has_fp8_products() && shape_.heads_first(); }
  void fp8_rows(std::int64_t chunk, const Heads& heads) const;
  void attend(std::int64_t chunk, const Heads& heads) const;
  TensorMap query_map(const Heads& heads) const;
  PrefillOutputs outputs(const Heads& heads) const;
  ScoreRules scores(const Heads& heads) const;
  ProjectedKeys keys(std::int64_t chunk, const Heads& heads) const;
  ProjectedKeys fp8_keys(std::int64_t chunk, const Heads& heads) const;
  PrefillParams attention(std::int64_t chunk, const Heads& heads) const;
  TensorView projected(const Heads& heads) const;
  TensorView matrix(std::byte* data, DType dtype, std::int64_t rows, std::int64_t columns) const;
  bool is_modified() const {
    return args_.softcap > 0 || args_.alibi_slopes.has_value() ||
           token_intervals(args_.mask).are_given();
  }
  // Whether this call's products are of e4m3.
  bool has_fp8_products() const { return shape_.has_fp8_products && !is_modified(); }
  const std::uint32_t* row_offsets() const { return args_.row_offsets.as<const std::uint32_t>(); }

  const MlaPrefillArgs& args_;
  const Context& context_;
  cudaStream_t stream_;
  BranchShape shape_;
  VisibleRange visible_;
  KvLayerView view_;
  any::mla_prefill::ChunkTable chunks_;
  BranchScratch scratch_;
};

}  // namespace quire::cuda::sm90::mla_prefill
