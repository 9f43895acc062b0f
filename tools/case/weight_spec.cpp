// SPDX-License-Identifier: Apache-2.0
#include "tools/case/weight_spec.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "core/block_format.h"
#include "quire/element.h"
#include "tools/case/random_stream.h"

namespace quire::tools {
namespace {

// The scale that makes weights about 1, and for blocks of 32 columns with mins the code that stands for 0.
struct BlockFactors {
  double scale;
  double middle = 0.0;
};

BlockFactors factors_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_0:
      return {1.0 / 8.0};
    case WeightFormat::q4_1:
      return {1.0 / 8.0, 7.5};
    case WeightFormat::q5_0:
      return {1.0 / 16.0};
    case WeightFormat::q5_1:
      return {1.0 / 16.0, 15.5};
    case WeightFormat::q8_0:
    case WeightFormat::iq4_nl:
      return {1.0 / 128.0};
    case WeightFormat::mxfp4:
      return {1.0 / 8.0};
    case WeightFormat::q4_k:
      return {1.0 / 500.0};
    case WeightFormat::q5_k:
      return {1.0 / 1000.0};
    default:
      return {1.0 / 2000.0};
  }
}

std::int64_t ceil_div(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

TensorView build_bytes(Memory& memory, std::uint64_t seed, const std::string& name, DType dtype,
                       std::initializer_list<std::int64_t> shape) {
  const TensorView view = memory.allocate(name, dtype, shape);
  const std::uint64_t stream = seed_of(name, seed);
  const std::int64_t count = bytes_for(dtype, view.numel());
  for (std::int64_t i = 0; i < count; ++i) {
    view.as<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(hash_of(stream, static_cast<std::uint64_t>(i)));
  }
  return view;
}

// Codes that may be any bytes, and nobody on the host changes.
TensorView build_codes(Memory& memory, std::uint64_t seed, DType dtype,
                       std::initializer_list<std::int64_t> shape) {
  std::vector<std::byte> period(static_cast<std::size_t>(RandomStream::kPeriod));
  const std::uint64_t stream = seed_of("weight", seed);
  for (std::size_t i = 0; i < period.size(); ++i) {
    period[i] = static_cast<std::byte>(hash_of(stream, i));
  }
  return memory.allocate_repeating("weight", dtype, shape, period);
}

Weight build_fp8(Memory& memory, const WeightSpec& spec, std::int64_t rows, std::int64_t columns,
                 std::uint64_t seed) {
  const double mean = 1.0 / (60.0 * std::sqrt(static_cast<double>(columns)));
  const bool block = spec.scale == WeightScale::block;
  const std::int64_t scale_rows = block                                ? ceil_div(rows, 128)
                                  : spec.scale == WeightScale::channel ? rows
                                                                       : 1;
  Weight weight;
  weight.format = WeightFormat::fp8;
  weight.data = build_tensor(memory, seed, "weight", spec.dtype, {rows, columns}, 60.0);
  weight.scale = build_tensor(memory, seed, "weight_scale", DType::f32,
                              {scale_rows, block ? ceil_div(columns, 128) : 1}, 0.1 * mean, mean);
  return weight;
}

// The factors of one block, about `amplitude`; the rest may be any bytes.
void store_factors(const BlockFormat& block, double amplitude, double middle, std::uint64_t stream,
                   std::uint64_t index, std::byte* start) {
  const double factor = amplitude * (1.0 + 0.2 * normal_at(stream, index));
  if (block.is_e8m0) {  // 2^(e − 128), and half or twice of it
    const double exponent = std::round(std::log2(amplitude) + 0.6 * normal_at(stream, index));
    start[block.scale_at] = static_cast<std::byte>(static_cast<int>(exponent) + 128);
    return;
  }
  store_element(start + block.scale_at, DType::f16, 0, factor);
  if (!block.has_mins()) return;
  const double noise = normal_at(stream ^ 1, index);
  const double min = middle == 0.0 ? factor : -middle * amplitude * (1.0 + 0.2 * noise);
  store_element(start + block.min_at, DType::f16, 0, min);
}

Weight build_gguf(Memory& memory, const WeightSpec& spec, std::int64_t rows, std::int64_t columns,
                  std::uint64_t seed) {
  const BlockFormat& block = block_format(spec.format);
  const BlockFactors factors = factors_of(spec.format);
  const std::int64_t blocks = columns / block.columns;
  Weight weight;
  weight.format = spec.format;
  weight.data = build_bytes(memory, seed, "weight", DType::u8, {rows, blocks * block.bytes});
  const std::uint64_t stream = seed_of("weight.factor", seed);
  const double amplitude = factors.scale / std::sqrt(static_cast<double>(columns));
  for (std::int64_t i = 0; i < rows * blocks; ++i) {
    store_factors(block, amplitude, factors.middle, stream, static_cast<std::uint64_t>(i),
                  weight.data.as<std::byte>() + i * block.bytes);
  }
  return weight;
}

TensorView build_perm(Memory& memory, std::int64_t columns, std::uint64_t seed) {
  const TensorView perm = memory.allocate("perm", DType::i32, {columns});
  auto* values = perm.as<std::int32_t>();
  std::iota(values, values + columns, 0);
  const std::uint64_t stream = seed_of("perm", seed);
  for (std::int64_t i = columns; i > 1; --i) {
    std::swap(values[i - 1], values[integer_at(stream, static_cast<std::uint64_t>(i), i)]);
  }
  return perm;
}

Weight build_grouped(Memory& memory, const WeightSpec& spec, std::int64_t rows,
                     std::int64_t columns, std::uint64_t seed) {
  const std::int64_t groups = columns / spec.group_size;
  const double mean =
      1.0 / (4.6 * std::sqrt(static_cast<double>(columns)));  // codes: deviation 4.6
  Weight weight;
  weight.format = spec.format;
  weight.group_size = spec.group_size;
  const bool transposed = spec.format != WeightFormat::int4;
  if (spec.format == WeightFormat::int4) {
    weight.data = build_codes(memory, seed, DType::u4, {rows, columns});
  } else if (spec.format == WeightFormat::awq) {
    weight.data = build_codes(memory, seed, DType::i32, {columns, rows / 8});
  } else {
    weight.data = build_codes(memory, seed, DType::i32, {columns / 8, rows});
  }
  weight.scale = transposed ? build_tensor(memory, seed, "weight_scale", spec.scale_dtype,
                                           {groups, rows}, 0.1 * mean, mean)
                            : build_tensor(memory, seed, "weight_scale", spec.scale_dtype,
                                           {rows, groups}, 0.1 * mean, mean);
  if (spec.has_zeros && transposed) {
    weight.zeros = build_bytes(memory, seed, "zeros", DType::i32, {groups, rows / 8});
  } else if (spec.has_zeros) {
    weight.zeros = build_bytes(memory, seed, "zeros", DType::u8, {rows, groups});
    const std::int64_t values = spec.largest_zero + 1;
    for (std::int64_t i = 0; i < rows * groups; ++i) {
      std::uint8_t& zero = weight.zeros->as<std::uint8_t>()[i];
      zero = static_cast<std::uint8_t>(zero % values);
    }
  }
  return weight;
}

Weight build_plain(Memory& memory, const WeightSpec& spec, std::int64_t rows, std::int64_t columns,
                   std::uint64_t seed) {
  if (spec.format == WeightFormat::fp8) return build_fp8(memory, spec, rows, columns, seed);
  if (is_block_format(spec.format)) return build_gguf(memory, spec, rows, columns, seed);
  if (is_grouped_format(spec.format)) return build_grouped(memory, spec, rows, columns, seed);
  const double amplitude = 1.0 / std::sqrt(static_cast<double>(columns));
  Weight weight;
  weight.data = build_tensor(memory, seed, "weight", spec.dtype, {rows, columns}, amplitude);
  return weight;
}

}  // namespace

double WeightSpec::bytes(std::int64_t rows, std::int64_t columns) const {
  const auto elements = static_cast<double>(rows) * static_cast<double>(columns);
  if (is_block_format(format)) {
    const BlockFormat& block = block_format(format);
    return elements / static_cast<double>(block.columns) * static_cast<double>(block.bytes);
  }
  if (!is_grouped_format(format)) return elements * bits(dtype) / 8.0;
  const double groups = elements / static_cast<double>(group_size);
  return elements / 2.0 + groups * (bits(scale_dtype) / 8.0 + (has_zeros ? 0.5 : 0.0));
}

WeightSpec read_weight(const Fields& fields) {
  WeightSpec spec;
  if (!fields.has("weight")) return spec;
  const Fields weight = fields.object("weight");
  const std::string format = weight.text("format", "dense");
  const auto known = weight_format_from_name(format);
  if (!known.has_value())
    weight.fail("format", "dense, fp8, int4, gptq, gptq_v2, awq or a GGUF type");
  spec.format = *known;
  if (spec.format == WeightFormat::dense) {
    spec.dtype = weight.dtype("dtype", {DType::f32, DType::f16, DType::bf16}, DType::bf16);
  }
  if (spec.format == WeightFormat::fp8) {
    spec.dtype = weight.dtype("dtype", {DType::fp8_e4m3, DType::fp8_e5m2}, DType::fp8_e4m3);
    const std::string scale = weight.choice("scale", {"tensor", "channel", "block"}, "tensor");
    spec.scale = scale == "tensor"    ? WeightScale::tensor
                 : scale == "channel" ? WeightScale::channel
                                      : WeightScale::block;
  }
  if (is_grouped_format(spec.format)) {
    spec.group_size = weight.integer("group_size", 1, 128);
    spec.has_zeros = weight.flag("zeros", false);
    if (spec.has_zeros && spec.format == WeightFormat::int4) {
      spec.largest_zero = weight.integer("largest_zero", 0, 15);
      if (spec.largest_zero > 255) weight.fail("largest_zero", "at most 255");
    }
    spec.scale_dtype =
        weight.dtype("scale_dtype", {DType::f32, DType::f16, DType::bf16}, DType::f32);
  }
  spec.has_perm = weight.flag("perm", false);
  weight.finish();
  return spec;
}

Weight build_weight(Memory& memory, const WeightSpec& spec, std::int64_t rows, std::int64_t columns,
                    std::uint64_t seed) {
  Weight weight = build_plain(memory, spec, rows, columns, seed);
  if (spec.has_perm) weight.perm = build_perm(memory, columns, seed);
  return weight;
}

}  // namespace quire::tools
