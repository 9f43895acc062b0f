// SPDX-License-Identifier: Apache-2.0
// What the two dense MLA ops have in common: head sizes, and how the new tokens' rows arrive.
//   "rows": "raw"        in the cache already, to be normalised and rotated in place
//   "rows": "kv"         raw, in a tensor of their own; the op writes the cache
//   "rows": "finished"   in the cache and done; no freqs_cis, no gamma
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/case/built.h"
#include "tools/case/fields.h"

namespace quire::tools {

struct LatentSpec {
  std::int64_t heads = 1;
  std::int64_t latent = 512;
  std::int64_t rope = 64;
  std::int64_t nope = 128;
  std::int64_t value = 128;
  DType q_dtype = DType::bf16;
  DType weight_dtype = DType::bf16;
  DType freqs_dtype = DType::f32;
  DType gamma_dtype = DType::bf16;
  std::string rows = "raw";
  double epsilon = 1e-6;
  double given_scale = 0.0;  // 0: the default

  bool finishes_rows() const { return rows != "finished"; }
  Contents contents() const { return rows == "kv" ? Contents::cached : Contents::cached_and_new; }
  double scale() const { return given_scale != 0.0 ? given_scale : default_scale(); }
  double default_scale() const;  // (nope + rope)^-0.5
};

LatentSpec read_latent(const Fields& fields, const CacheSpec& cache);

// The optional tensors of a problem whose rows are finished by the op.
struct NewRows {
  std::optional<TensorView> freqs_cis{};
  std::optional<TensorView> kv_norm_gamma{};
  std::optional<TensorView> kv{};
};
NewRows build_new_rows(Memory& memory, const LatentSpec& spec, const Lengths& lengths,
                       std::uint64_t seed);

// cos, sin interleaved, base 10000: [positions, rope].
TensorView build_freqs(Memory& memory, DType dtype, std::int64_t positions, std::int64_t rope);

// [rows, columns] or [heads, rows, columns], about columns^-0.5 large; fp8 with its 128×128 block
// scales.
struct ProjectionWeight {
  TensorView data;
  std::optional<TensorView> scale{};
};
ProjectionWeight build_projection(Memory& memory, const std::string& name, DType dtype,
                                  std::int64_t rows, std::int64_t columns, std::uint64_t seed);
ProjectionWeight build_head_projection(Memory& memory, const std::string& name, DType dtype,
                                       std::int64_t heads, std::int64_t rows, std::int64_t columns,
                                       std::uint64_t seed);

}  // namespace quire::tools
