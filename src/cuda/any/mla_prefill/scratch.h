// SPDX-License-Identifier: Apache-2.0
// What the general kernels keep in scratch, and how much of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/any/mla_prefill/params.h"
#include "cuda/common/runtime/carver.h"
#include "quire/ops/mla_prefill.h"

namespace quire::cuda::any::mla_prefill {

struct GeneralSizes {
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t latent;
  std::int64_t rope;
  std::int64_t nope;
  std::int64_t value;
  std::int64_t rows;  // of a chunk, as many as the page tables can fill
  std::int64_t max_chunks;
  std::int64_t element_bytes;  // of q's dtype

  std::int64_t projected_width() const { return nope + value; }
  // Heads whose K and V are in scratch together.
  std::int64_t group() const;
};

struct GeneralScratch {
  float* new_rows;       // [tokens, latent + rope]
  float* latents;        // [rows, latent]
  std::byte* projected;  // [rows, group, nope + value], of q's dtype
  AttendState state;
};

GeneralSizes general_sizes(const MlaPrefillArgs& args);
GeneralSizes general_sizes(const MlaPrefillProblem& problem);
GeneralScratch carve(Carver& carver, const GeneralSizes& sizes);

}  // namespace quire::cuda::any::mla_prefill
