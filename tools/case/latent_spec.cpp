// SPDX-License-Identifier: Apache-2.0
#include "tools/case/latent_spec.h"

#include <algorithm>
#include <cmath>

namespace quire::tools {
namespace {

constexpr double kCodeAmplitude = 60.0;  // of stored fp8 numbers

std::int64_t blocks_of(std::int64_t size) {
  return (size + 127) / 128;
}

double weight_amplitude(std::int64_t columns) {
  return 1.0 / std::sqrt(static_cast<double>(columns));
}

}  // namespace

double LatentSpec::default_scale() const {
  return 1.0 / std::sqrt(static_cast<double>(nope + rope));
}

LatentSpec read_latent(const Fields& fields, const CacheSpec& cache) {
  const auto floats = {DType::f32, DType::f16, DType::bf16};
  LatentSpec spec;
  spec.heads = fields.integer("heads", 1);
  spec.latent = cache.latent;
  spec.rope = cache.width() - cache.latent;
  spec.nope = fields.integer("nope", 1, 128);
  spec.value = fields.integer("value", 1, 128);
  spec.q_dtype = fields.dtype("q_dtype", floats, DType::bf16);
  spec.weight_dtype = fields.dtype(
      "weight_dtype", {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3}, spec.q_dtype);
  spec.freqs_dtype = fields.dtype("freqs_dtype", floats, DType::f32);
  spec.gamma_dtype = fields.dtype("gamma_dtype", floats, DType::bf16);
  spec.rows = fields.choice("rows", {"raw", "kv", "finished"}, "raw");
  spec.epsilon = fields.number("epsilon", 1e-6);
  spec.given_scale = fields.number("scale", 0.0);
  return spec;
}

TensorView build_freqs(Memory& memory, DType dtype, std::int64_t positions, std::int64_t rope) {
  const TensorView freqs = memory.allocate("freqs_cis", dtype, {positions, rope});
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t pair = 0; pair < rope / 2; ++pair) {
      const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(rope);
      const double angle = static_cast<double>(position) * std::pow(10000.0, exponent);
      freqs.store({position, 2 * pair}, std::cos(angle));
      freqs.store({position, 2 * pair + 1}, std::sin(angle));
    }
  }
  return freqs;
}

NewRows build_new_rows(Memory& memory, const LatentSpec& spec, const Lengths& lengths,
                       std::uint64_t seed) {
  NewRows rows;
  if (!spec.finishes_rows()) return rows;
  const std::int64_t positions = std::max<std::int64_t>(1, lengths.max_keys());
  rows.freqs_cis = build_freqs(memory, spec.freqs_dtype, positions, spec.rope);
  rows.kv_norm_gamma =
      build_tensor(memory, seed, "kv_norm_gamma", spec.gamma_dtype, {spec.latent}, 0.1, 1.0);
  if (spec.rows == "kv") {
    rows.kv =
        build_tensor(memory, seed, "kv", spec.q_dtype, {lengths.tokens(), spec.latent + spec.rope});
  }
  return rows;
}

ProjectionWeight build_projection(Memory& memory, const std::string& name, DType dtype,
                                  std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  const double amplitude = weight_amplitude(columns);
  if (!is_fp8(dtype))
    return {build_tensor(memory, seed, name, dtype, {rows, columns}, amplitude), {}};
  const double mean = amplitude / kCodeAmplitude;
  return {build_tensor(memory, seed, name, dtype, {rows, columns}, kCodeAmplitude),
          build_tensor(memory, seed, name + "_scale", DType::f32,
                       {blocks_of(rows), blocks_of(columns)}, 0.1 * mean, mean)};
}

ProjectionWeight build_head_projection(Memory& memory, const std::string& name, DType dtype,
                                       std::int64_t heads, std::int64_t rows, std::int64_t columns,
                                       std::uint64_t seed) {
  const double amplitude = weight_amplitude(columns);
  if (!is_fp8(dtype)) {
    return {build_tensor(memory, seed, name, dtype, {heads, rows, columns}, amplitude), {}};
  }
  const double mean = amplitude / kCodeAmplitude;
  return {build_tensor(memory, seed, name, dtype, {heads, rows, columns}, kCodeAmplitude),
          build_tensor(memory, seed, name + "_scale", DType::f32,
                       {heads, blocks_of(rows), blocks_of(columns)}, 0.1 * mean, mean)};
}

}  // namespace quire::tools
