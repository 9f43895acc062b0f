// SPDX-License-Identifier: Apache-2.0
// RMSNorm of the new tokens' cached keys (rms_norm_key) or values (rms_norm_value), in place.
//   y = x · rsqrt(mean(x²) + ε) · (gamma + weight_offset)
// per head over the first len(gamma) columns (the others are left alone), or over the whole token.
#pragma once

#include <cstdint>

#include "quire/context.h"
#include "quire/export.h"
#include "quire/ops/problem.h"
#include "quire/paged_kv_cache.h"
#include "quire/plan.h"
#include "quire/prepared.h"

namespace quire {

enum class KvSide : std::uint8_t { key, value };

struct RmsNormArgs {
  PagedKVCache cache;  // unscaled rows
  std::int64_t layer = 0;
  KvSide side = KvSide::key;
  TensorView row_offsets;  // u32 [batch + 1]
  TensorView gamma;        // [columns ≤ head_dim], per_head = false: [heads · head_dim]
  double epsilon = 1e-6;
  double weight_offset = 0.0;
  bool per_head = true;
  // true: one rounding at the end. false: the normalised value is rounded to gamma's dtype before
  // gamma multiplies it.
  bool multiply_before_cast = true;
};

struct RmsNormProblem {
  Device device{};
  RaggedSize ragged{};
  CacheShape cache{};
  KvSide side = KvSide::key;
  std::int64_t columns = 0;
  DType gamma_dtype = DType::bf16;
  bool per_head = true;

  bool operator==(const RmsNormProblem&) const = default;
};

QUIRE_API RmsNormProblem validate(const RmsNormArgs& args);
QUIRE_API Plan plan(const RmsNormProblem& problem, const Context& context = {});
QUIRE_API Prepared<RmsNormProblem> prepare(const RmsNormProblem& problem,
                                           const Context& context = {});
QUIRE_API Plan supports(const RmsNormArgs& args, const Context& context = {});
QUIRE_API void run(const Prepared<RmsNormProblem>& prepared, const RmsNormArgs& args,
                   const Context& context = {});
QUIRE_API void rms_norm_key(RmsNormArgs args, const Context& context = {});    // side = key
QUIRE_API void rms_norm_value(RmsNormArgs args, const Context& context = {});  // side = value

}  // namespace quire
