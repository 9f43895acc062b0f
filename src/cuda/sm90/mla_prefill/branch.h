// SPDX-License-Identifier: Apache-2.0
// One call of mla_prefill: its scratch, and the kernels that it starts.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "cuda/common/prefill_attention/params.h"
#include "cuda/common/runtime/carver.h"
#include "cuda/sm90/mla_prefill/params.h"
#include "cuda/sm90/mla_prefill/project.h"
#include "quire/ops/mla_prefill.h"

namespace quire::cuda::sm90::mla_prefill {

// Which problems the branch takes, and how its scratch is cut. Pure: tested without a GPU.

struct BranchShape {
  static constexpr std::int64_t kNope = 128;
  static constexpr std::int64_t kRope = 64;
  static constexpr std::int64_t kValue = 128;
  static constexpr std::int64_t kProjected = kNope + kValue;  // columns of a head
  static constexpr std::int64_t kScaleColumns = 128;          // latents that share a scale
  static constexpr std::int64_t kElementBytes = 2;            // of q's dtype
  static constexpr std::int64_t kSumBytes = 4;                // of what is kept between chunks

  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t latent = 0;
  std::int64_t batch = 0;
  std::int64_t rows = 0;          // of a chunk, as many as the page tables can fill
  std::int64_t max_chunks = 0;    // that a plan may use
  bool is_fp8 = false;            // the weight
  bool has_fp8_products = false;  // products of the attention may be of e4m3

  // Heads whose K and V stand in the scratch together; groups are of nearly equal size.
  std::int64_t group() const;
  std::int64_t groups() const { return heads == 0 ? 0 : (heads + group() - 1) / group(); }
  // A head's K and V stand together, as the weight-stationary projection writes them.
  bool heads_first() const { return is_fp8 && (latent + kScaleColumns - 1) / kScaleColumns == 4; }
  // K and V of e4m3 are made of those that the projection writes, which cannot write them itself.
  bool rounds_projected() const { return has_fp8_products && !heads_first(); }
  // Scales of a latent row, padded to a 16-byte load.
  std::int64_t scale_columns() const {
    return is_fp8 ? (latent + 4 * kScaleColumns - 1) / (4 * kScaleColumns) * 4 : 0;
  }
};

// Empty, or why the problem is not one of the branch's.
std::string refuse_shape(const MlaPrefillProblem& problem);
BranchShape branch_shape(const MlaPrefillProblem& problem);

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
